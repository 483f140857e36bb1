"""Softmax: the plain output layer, also with a matrix of low rank, capped or mapped logits, or a centred matrix."""

from typing import Literal

from torch import Tensor, nn

from harness.distributions import (
    BinaryLogLoss,
    Cap,
    Compat,
    Mixture,
    Start,
    facet_map,
    log_epsilon,
    logit_map_of,
    output_layer,
    output_width,
    softcap_of,
    start_as_,
    uniform_output_,
)
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("softmax")
class Softmax(nn.Module):
    """Softmax: the top hidden state, or an affine map of it, is multiplied by the output matrix.

    f = h, or U h + a with `projection`;    log p = log_softmax(phi(W f + b))
    phi(z) = z, or with `softcap` c tanh(z / c) or a sigmoid((z + b) / c), or with `logit_map` sign(z) log(1 + |z|)
    with `mu_centering` W - 1 mu' stands for W, mu the mean of its rows;    with `mu_loss` the training loss has
    lambda mu' mu in addition, with `z_loss` beta (log Z)^2, Z = sum_x exp(phi(z[x]))

    With `projection` and `d_embed` = r the logits are those of the matrix W U, of rank r: the low-rank softmax, the
    control for the rank of the log-probabilities.
    Brief: one output matrix; an affine map if asked
    Cost: 1 softmax
    Family: plain
    Shapes: top layer h (B, T, D) -> facet f (B, T, 1, E), output matrix W (V, E), U (E, D).
    Args:
        projection: apply an affine map D -> E before the output matrix (the multi-facet poster's "Softmax" row).
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        d_embed: E; None for the width of the backbone's embedding.
        softcap: c: each logit z becomes c tanh(z / c) before the softmax (SoftCap; Gemma 2 has 30). {a, b, c}: it
            becomes a sigmoid((z + b) / c) (SigmoidCap; modded-nanogpt has 23, 5 and 7.5). None: z.
        mu_centering: subtract the mean row of W from each row (output embedding centring).
        mu_loss: lambda, the weight of the squared norm of the mean row of W in the training loss; the authors
            have 1e-4.
        z_loss: beta, the weight of the squared logarithm of the normaliser in the training loss (Mixture); PaLM has
            1e-4. `train.z_loss` gives it to every head of a suite, and counts if both are given.
        input_gradient_scale: the factor by which the gradient that a tied W gets as the input embedding is multiplied;
            the authors have 2, 5 and 10. It needs tie_weights.
        loss: the training loss: 'nll', or 'binary', a binary cross-entropy of every word (BinaryLogLoss).
        start: the initialisation. 'embedding': W is a copy of the input embedding, U the identity, and biases are zero,
            so that a pretrained model with tied weights starts unchanged; 'pretrained': W, b and c are those of the
            backbone's own output layer, U the identity: the head computes what the model computes, and is the baseline
            of a comparison on a pretrained model; 'xavier': see Differs; 'identity': the same W and b, U the identity.
        compat: {log_epsilon: 1e-8} computes log(p + 1e-8), as the code of the multi-facet poster does in every row.
            None for log p.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: as `start` says.
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
        logit_map: phi: 'identity', or 'stablemax' (StableMax), with which no start computes what a pretrained softmax
            computes.
    Raises: ValueError when D differs from E without a projection or with another start than 'xavier', start 'identity'
        has no projection, start 'embedding' or 'pretrained' has an init_range, init_range <= 0, init_bias is 'uniform'
        without init_range or without b, d_embed < 1, weights are tied or copied and E is not the width of the
        embedding, softcap <= 0 or given with 'stablemax', mu_loss < 0 or beside mu_centering, z_loss < 0,
        input_gradient_scale <= 0 or without tie_weights, or there is no pretrained output layer.
    Source: the usual log-linear output layer; the baseline of Benka et al. (2021). Low rank: Yang et al. (2018),
        arXiv:1711.03953, section 2.2. Soft cap: Bello et al. (2016), arXiv:1611.09940; Gemma 2, arXiv:2408.00118;
        KellerJordan/modded-nanogpt, train_gpt.py. StableMax: Prieto et al. (2025), arXiv:2501.04697. Z-loss: Chowdhery
        et al. (2022), arXiv:2204.02311, section 5.
        Centring: Stollenwerk et al. (2026), arXiv:2601.02031, known from flxst/output-embedding-centering,
        nanoGPT/train.py and model.py. Input gradients: Lopardo et al. (2026), arXiv:2603.26663, section 6, known from
        AntonioLopardo/weight-tying-bias, OLMo/olmo/model.py.
    Differs: W is Xavier-uniform unless it is tied, as in the code of Benka et al.; biases have torch's Linear default.
        The authors of mu-centering subtract the mean from the parameter after each step. Here the parameter stays, and
        logits are computed with the centred matrix. Without cap and z-loss the gradient of W has a mean of 0, and the
        two give the same probabilities after the same steps; a tied input embedding is not centred here.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        loss: Literal["nll", "binary"] = "nll",
        start: Start = "xavier",
        compat: Compat | None = None,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
        d_embed: int | None = None,
        softcap: Cap | None = None,
        mu_centering: bool = False,
        mu_loss: float = 0.0,
        z_loss: float = 0.0,
        input_gradient_scale: float = 1.0,
        logit_map: Literal["identity", "stablemax"] = "identity",
    ):
        super().__init__()
        softcap = softcap_of(start, dims, softcap)
        if mu_loss < 0 or (mu_loss and mu_centering):
            raise ValueError(f"mu_loss must be at least 0, and 0 with mu_centering, got {mu_loss}")
        if z_loss < 0:
            raise ValueError(f"z_loss must be at least 0, got {z_loss}")
        self.mu_centering, self.mu_loss, self.z_loss = mu_centering, mu_loss, z_loss
        self.phi, self.log_epsilon = logit_map_of(softcap, logit_map), log_epsilon(compat)
        width = output_width(dims, d_embed, tie_weights=tie_weights)
        self.distribution = {"nll": Mixture, "binary": BinaryLogLoss}[loss]
        self.facet = facet_map(dims, projection=projection, width=width)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights, width=width)
        start_as_(start, dims, embedding, self.facet, self.output, init_range)
        uniform_output_(self.output, init_range, init_bias)
        if input_gradient_scale != 1:
            _scale_input_gradient_(embedding, input_gradient_scale, tie_weights)

    @classmethod
    def label(cls, p) -> str:
        words = {"tied": p.tie_weights, "affine": p.projection, "centred": p.mu_centering}
        kind = "softmax" if p.logit_map == "identity" else p.logit_map
        name = " ".join([*(word for word, said in words.items() if said), kind])
        name += f", rank {p.d_embed}" if p.d_embed else ""
        name += ", binary loss" if p.loss == "binary" else ""
        return name + (", log(p + epsilon)" if p.compat else "")

    @classmethod
    def is_control(cls, **params: object) -> bool:
        """Whether nothing but an affine map, a bias or a width is added to a plain softmax."""
        changed = (params["softcap"], params["mu_centering"], params["mu_loss"], params["z_loss"], params["compat"])
        usual = (params["logit_map"], params["loss"], params["input_gradient_scale"]) == ("identity", "nll", 1)
        return usual and not any(changed)

    def forward(self, hidden: Hidden) -> Mixture:
        """Map (B, T, D) top states to a Mixture of one component."""
        facet_BTE = self.facet(hidden.layers[-1])
        weight, bias = self.output.weight, self.output.bias
        pull = self.mu_loss * weight.mean(0).square().sum() if self.mu_loss else 0.0
        if self.mu_centering:
            weight = weight - weight.mean(0)
        options = {"logit_map": self.phi, "log_epsilon": self.log_epsilon, "aux_loss": pull}
        found = self.distribution(facet_BTE[:, :, None], None, weight, bias, **options)
        found.z_loss = self.z_loss
        return found


def _scale_input_gradient_(embedding: nn.Embedding, factor: float, tie_weights: bool) -> None:
    """Multiply the gradients of what the embedding returns from now on. Its values stay."""
    if factor <= 0 or not tie_weights:
        raise ValueError(f"input_gradient_scale must be more than 0, and 1 without tie_weights, got {factor}")

    def scale(module: nn.Module, given: tuple[Tensor, ...], found: Tensor) -> None:
        if found.requires_grad:
            found.register_hook(lambda gradient: factor * gradient)

    embedding.register_forward_hook(scale)
    embedding.changed_by = "input_gradient_scale"  # see build_head in harness/model.py
