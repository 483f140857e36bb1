"""Adaptive softmax (Grave et al., 2017): frequent words first, rare words in clusters of smaller width."""

import torch
from torch import Tensor, nn

from harness.distributions import Statistics, linear, statistics_of, weighted_mean, xavier_uniform_
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


class Clustered:
    """A distribution over words in two steps: a frequent word or a cluster, and then a word of the cluster.

    log p(x) = log_softmax(z_0)[x] for a frequent word
    log p(x) = log_softmax(z_0)[c] + log_softmax(z_c)[x] for a word of cluster c

    Only the clusters of the targets are computed for the loss. The z-loss of a token is the sum of (log Z)^2 over the
    softmaxes that give the probability of its target, that is one or two.
    Shapes: h (B, T, D); rank_V (V,) the place of each word in the order of the outputs.
    """

    def __init__(self, h_BTD: Tensor, layers: nn.AdaptiveLogSoftmaxWithLoss, rank_V: Tensor):
        self.shape, self.h_ND = h_BTD.shape[:2], h_BTD.flatten(0, 1)
        self.layers, self.rank_V = layers, rank_V
        self.aux_loss, self.z_loss = 0.0, 0.0

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() mean_nll + z-loss."""
        nll_N, squares_N = self._losses(targets_BT)
        return weighted_mean((nll_N + self.z_loss * squares_N).view(self.shape), weight_BT)

    def mean_nll(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() nats: sum(weight * nll) / sum(weight); the plain mean without weights."""
        return weighted_mean(self.nll(targets_BT), weight_BT)

    def nll(self, targets_BT: Tensor) -> Tensor:
        """(B, T) nats, exact."""
        return self._losses(targets_BT)[0].view(self.shape)

    def log_probs(self) -> Tensor:
        """(B, T, V) nats, normalised over V."""
        first_NS = self._first(self.h_ND).log_softmax(-1)
        short = self.layers.shortlist_size
        parts = [first_NS[:, :short]]
        for c in range(self.layers.n_clusters):
            parts.append(first_NS[:, short + c, None] + self._within(c, self.h_ND).log_softmax(-1))
        return torch.cat(parts, dim=-1).index_select(-1, self.rank_V).unflatten(0, self.shape)

    @torch.no_grad()
    def statistics(self) -> Statistics:
        """Log-normalisers of the first softmax and of each cluster, entropy and the most probable word."""
        logits = [self._first(self.h_ND), *(self._within(c, self.h_ND) for c in range(self.layers.n_clusters))]
        log_normaliser_NK = torch.stack([z.logsumexp(-1) for z in logits], dim=-1)
        return statistics_of(self.log_probs(), log_normaliser_NK.unflatten(0, self.shape))

    def _losses(self, targets_BT: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) nats, and (N,) the sums of (log Z)^2."""
        rank_N, short = self.rank_V.index_select(0, targets_BT.flatten()), self.layers.shortlist_size
        ends = torch.tensor(self.layers.cutoffs, device=rank_N.device)
        cluster_N = torch.bucketize(rank_N, ends, right=True) - 1  # -1: a frequent word
        first_NS = self._first(self.h_ND)
        log_z_N = first_NS.logsumexp(-1)
        at_N = torch.where(cluster_N < 0, rank_N, short + cluster_N)
        nll_N, squares_N = log_z_N - first_NS.gather(-1, at_N[:, None])[:, 0], log_z_N.square()
        for c in range(self.layers.n_clusters):
            rows = (cluster_N == c).nonzero()[:, 0]
            z = self._within(c, self.h_ND.index_select(0, rows))
            word = rank_N.index_select(0, rows) - self.layers.cutoffs[c]
            log_z = z.logsumexp(-1)
            nll_N = nll_N.index_add(0, rows, log_z - z.gather(-1, word[:, None])[:, 0])
            squares_N = squares_N.index_add(0, rows, log_z.square())
        return nll_N, squares_N

    def _first(self, h_ND: Tensor) -> Tensor:
        """(N, S) the logits of the frequent words and of the clusters, in at least float32."""
        return _wide(linear(h_ND, self.layers.head.weight, self.layers.head.bias))

    def _within(self, c: int, h_nD: Tensor) -> Tensor:
        """(n, V_c) the logits of the words of a cluster, in at least float32."""
        narrow, words = self.layers.tail[c]
        return _wide(linear(narrow(h_nD), words.weight))


@HEADS.register("adaptive")
class AdaptiveSoftmax(nn.Module):
    """Adaptive softmax: for speed with a large vocabulary.

    z_0 = A_0 h (+ a) scores the frequent words and the C clusters;    z_c = A_c B_c h scores the words of cluster c
    p(x) = softmax(z_0)[x] for a frequent word, softmax(z_0)[c] softmax(z_c)[x] for a word of cluster c

    Brief: a fast softmax for a large vocabulary
    Cost: < 1 softmax
    Shapes: top layer h (B, T, D); A_0 (cutoff_1 + C, D); B_c (D / div_value^c, D), A_c (V_c, D / div_value^c).
    Args:
        cutoffs: the ends of the frequent words and of all clusters but the last, as numbers of words from the most
            frequent down. The last cluster ends at V. None: one quarter of V, and so one cluster.
        div_value: the factor by which the width of each cluster is smaller than that of the one before; the frequent
            words have D.
        bias: add a bias a for each frequent word and cluster. The words of clusters have none.
    Raises: ValueError when the cutoffs do not increase, or not all are between 0 and V, div_value < 1, a cluster would
        have a width of 0, or V < 2. RuntimeError in `forward` when the head was built without the token counts of the
        training split.
    Source: Grave, Joulin, Cisse, Grangier and Jegou (2017), arXiv:1609.04309, section 4; the layers are those of
        torch's AdaptiveLogSoftmaxWithLoss.
    Differs: torch takes the ids of words as their ranks; here words are ranked by their counts in the training split,
        with ties by id, because the clusters make no sense in another order. Log-probabilities are computed in at least
        float32. Matrices are Xavier-uniform, as in the other heads. There is no tying with the input embedding.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        cutoffs: tuple[int, ...] | None = None,
        div_value: float = 4.0,
        bias: bool = True,
    ):
        super().__init__()
        V, d_top = dims.vocab_size, dims.layer_dims[-1]
        if V < 2:
            raise ValueError(f"an adaptive softmax needs a vocabulary of at least 2 words, got {V}")
        if cutoffs is None:
            cutoffs = (max(1, V // 4),)
        if not cutoffs or any(low >= high for low, high in zip((0, *cutoffs), (*cutoffs, V), strict=True)):
            raise ValueError(f"cutoffs must increase and be between 0 and V = {V}, got {list(cutoffs)}")
        if div_value < 1:
            raise ValueError(f"div_value must be at least 1, got {div_value}")
        if d_top // div_value ** len(cutoffs) < 1:
            raise ValueError(
                f"div_value: cluster {len(cutoffs)} would have width {d_top} / {div_value:g}^{len(cutoffs)} < 1; give "
                "fewer cutoffs or a smaller div_value"
            )
        self.layers = nn.AdaptiveLogSoftmaxWithLoss(d_top, V, cutoffs, div_value=div_value, head_bias=bias)
        xavier_uniform_(self.layers.head, *(layer for tail in self.layers.tail for layer in tail))
        rank_V = None if dims.token_counts is None else _ranks(dims.token_counts)
        self.register_buffer("rank_V", rank_V)

    @classmethod
    def label(cls, p) -> str:
        return "adaptive softmax"

    def forward(self, hidden: Hidden) -> Clustered:
        """Map (B, T, D) top states to a distribution in clusters."""
        if self.rank_V is None:
            raise RuntimeError("adaptive needs HeadDims.token_counts: words are ranked by their counts")
        return Clustered(hidden.layers[-1], self.layers, self.rank_V)


def _ranks(counts_V: Tensor) -> Tensor:
    """(V,) the rank of each word by its count, 0 for the most frequent; ties by id."""
    return torch.argsort(torch.argsort(counts_V, descending=True, stable=True))


def _wide(z: Tensor) -> Tensor:
    return z.to(torch.promote_types(z.dtype, torch.float32))
