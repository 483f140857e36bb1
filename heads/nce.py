"""A softmax trained by noise-contrastive estimation (NCE)."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.distributions import (
    Mixture,
    facet_map,
    linear,
    output_layer,
    uniform_output_,
    weighted_mean,
    xavier_uniform_,
)
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS

SMALLEST_PROBABILITY = 1e-10


class UnigramNoise(nn.Module):
    """The noise distribution q: the unigram distribution of the training split, with a lower limit of 1e-10.

    Samples are drawn by Walker's alias method: choose one of V columns with equal probability; then return the word of
    the column with probability `keep`, else its alias.
    Shapes: log_q, keep (V,) in float64, alias (V,).
    Source: Walker (1977); the table is made by the method of Vose (1991), in O(V).
    """

    def __init__(self, token_counts: Tensor):
        super().__init__()
        if token_counts.sum() < 1:
            raise ValueError("nce: the training split has no tokens for the noise distribution")
        q_V = (token_counts.double() / token_counts.sum()).clamp(min=SMALLEST_PROBABILITY)
        q_V = q_V / q_V.sum()
        keep, alias = _alias_table(len(q_V) * q_V)
        self.register_buffer("log_q", q_V.log())
        self.register_buffer("keep", torch.tensor(keep, dtype=torch.float64))
        self.register_buffer("alias", torch.tensor(alias))

    def sample(self, num: int) -> Tensor:
        """Return (num,) independent word ids."""
        column = torch.randint(len(self.alias), (num,), device=self.alias.device)
        kept = torch.rand(num, dtype=self.keep.dtype, device=self.keep.device) < self.keep[column]
        return torch.where(kept, column, self.alias[column])


class NoiseContrastive(Mixture):
    """A softmax whose training loss is NCE. nll, mean_nll and log_probs are those of the exact, normalised softmax.

    With scores s(x) = z_x - lnZ, noise words x_1 .. x_k drawn from q, and sigma the logistic function,

        loss = mean over tokens of  -log sigma(s(y) - log(k q(y))) - sum_i log sigma(log(k q(x_i)) - s(x_i))

    All tokens of a batch share the same noise words. Each token needs k + 1 scores instead of V.
    Shapes: facet (B, T, E); weight (V, E); bias (V,) or None.
    """

    def __init__(
        self,
        facet_BTE: Tensor,
        weight_VE: Tensor,
        bias_V: Tensor | None,
        *,
        noise: UnigramNoise | None,
        num_noise: int,
        log_normaliser: float,
    ):
        super().__init__(facet_BTE[:, :, None], None, weight_VE, bias_V)
        self.noise, self.num_noise, self.log_normaliser = noise, num_noise, log_normaliser

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() the NCE loss with new noise words, averaged like mean_nll, plus the z-loss.

        Raises: RuntimeError without token counts.
        """
        if self.noise is None:
            raise RuntimeError(
                "nce needs HeadDims.token_counts: its noise distribution is the unigram of the training split"
            )
        loss_N = self.contrast(targets_BT.reshape(-1), self.noise.sample(self.num_noise))
        return weighted_mean(loss_N.view(self.shape), weight_BT) + self.z_term(weight_BT)

    def contrast(self, targets_N: Tensor, noise_words: Tensor) -> Tensor:
        """(N,) the NCE loss of each token against the given noise words."""
        facet_NE, bias_V = self.facets_NFE.squeeze(1), self.bias_V
        # index_select, because with several threads the gradient of indexing is summed in a varying order
        target_z_N = torch.linalg.vecdot(facet_NE, self.weight_VE.index_select(0, targets_N))
        noise_z_Nk = linear(facet_NE, self.weight_VE.index_select(0, noise_words))
        if bias_V is not None:
            target_z_N = target_z_N + bias_V.index_select(0, targets_N)
            noise_z_Nk = noise_z_Nk + bias_V.index_select(0, noise_words)
        wide = torch.promote_types(facet_NE.dtype, torch.float32)
        # the logit z at which data and noise are equally probable
        even_V = (self.noise.log_q + math.log(len(noise_words)) + self.log_normaliser).to(wide)
        from_data_N = functional.logsigmoid(target_z_N - even_V[targets_N])
        from_noise_Nk = functional.logsigmoid(even_V[noise_words] - noise_z_Nk)
        return -from_data_N - from_noise_Nk.sum(-1)


@HEADS.register("nce")
class NoiseContrastiveSoftmax(nn.Module):
    """A softmax that is trained by noise-contrastive estimation (NCE). Evaluation uses the exact softmax.

    f = h, or U h + a with `projection`;    z = W f + b;    training loss: NoiseContrastive;    log p = log_softmax(z)

    Brief: softmax, noise-contrastive estimation
    Cost: k + 1 words
    Shapes: top layer h (B, T, D) -> facet f (B, T, E), output matrix W (V, E).
    Args:
        num_noise: k, the number of noise words that are drawn for each batch; with `accumulation` or `data_parallel`,
            for each part of a batch.
        log_normaliser: lnZ, the constant that is assumed as the log-normaliser of all scores; None for log V.
        projection: apply an affine map D -> E before the output matrix.
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r). With and without init_range:
            'unigram', log q + lnZ.
    Raises: ValueError when init_range <= 0, init_bias is 'uniform' without init_range or without b, num_noise < 1, D
        differs from E without a projection, or init_bias is 'unigram' and there is no bias.
    Source: Gutmann and Hyvarinen (2010); Mnih and Teh (2012), arXiv:1206.6426; Stonesjtu/Pytorch-NCE, nce.py and
        index_linear.py at commit 3221e45 of December 2017, which its logs are of, and nce/nce_loss.py and
        nce/index_linear.py of 2019 (shared noise, alias sampling, lnZ).
    Differs: perplexity is always computed with the normalised softmax. lnZ is log V by default, as in the authors' code
        of 2019; in that of 2017 it is 9. By default W is Xavier-uniform and b has torch's Linear default. The authors'
        start of 2017 is W in U(-0.1, 0.1) and b = 0 (init_range 0.1), that of 2019 W in U(-1/sqrt(E), 1/sqrt(E)) and b
        = log q + lnZ (init_range and init_bias 'unigram'), with which a facet of zeros scores every word as the noise
        does. All tokens share their noise words, as by default in the code of 2019; in that of 2017 each token has its
        own. q has the lower limit of 2019, which 2017 has not. As in the authors' code, a noise word that equals the
        target is not left out.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        num_noise: int = 100,
        log_normaliser: float | None = None,
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform", "unigram"] = "zero",
    ):
        super().__init__()
        if num_noise < 1:
            raise ValueError(f"num_noise must be at least 1, got {num_noise}")
        self.num_noise = num_noise
        self.log_normaliser = math.log(dims.vocab_size) if log_normaliser is None else log_normaliser
        self.facet = facet_map(dims, projection=projection)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        xavier_uniform_(self.facet)
        uniform_output_(self.output, init_range, init_bias)
        self.noise = None if dims.token_counts is None else UnigramNoise(dims.token_counts)
        if init_bias == "unigram":
            self._start_bias_as_unigram()

    @classmethod
    def label(cls, p) -> str:
        name = "affine NCE" if p.projection else "NCE"
        return name + (f", {p.num_noise} noise words" if p.num_noise else "")

    def _start_bias_as_unigram(self) -> None:
        """Initialise b as log q + lnZ: the score s(x) of a zero facet is log q(x)."""
        if self.output.bias is None:
            raise ValueError("init_bias: 'unigram' needs a head with a bias")
        if self.noise is not None:  # without counts the head can be counted, but not trained
            with torch.no_grad():
                self.output.bias.copy_(self.noise.log_q + self.log_normaliser)

    def forward(self, hidden: Hidden) -> NoiseContrastive:
        """Map (B, T, D) top states to a softmax whose training loss is NCE."""
        return NoiseContrastive(
            self.facet(hidden.layers[-1]),
            self.output.weight,
            self.output.bias,
            noise=self.noise,
            num_noise=self.num_noise,
            log_normaliser=self.log_normaliser,
        )


def _alias_table(heights_V: Tensor) -> tuple[list[float], list[int]]:
    """Return (keep, alias): columns of height 1 from words of height V q(x).

    A column has its word up to `keep`, and its alias above.
    """
    keep, small, large = heights_V.tolist(), [], []
    alias = list(range(len(keep)))
    for x, height in enumerate(keep):
        (small if height < 1 else large).append(x)
    while small and large:
        x, donor = small.pop(), large[-1]
        alias[x] = donor
        keep[donor] -= 1 - keep[x]
        if keep[donor] < 1:
            small.append(large.pop())
    for x in small + large:  # because of rounding some columns remain; they are full
        keep[x] = 1.0
    return keep, alias
