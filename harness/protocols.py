"""What a backbone, a head and the distribution between them and the loss must offer.

Shape letters, used all over the project: B batch, T time, D width of a layer, E width of the output embedding,
V vocabulary, K mixtures, F facets, P partitions, N = B*T tokens.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn


class Hidden(NamedTuple):
    """What a backbone returns for one segment.

    Shapes: layers, bottom to top, each (B, T, D_l); layers[-1] is what a plain head reads.
    `state` is the recurrent state to carry to the next segment (a tensor or nested tuples of tensors), or None.
    """

    layers: tuple[Tensor, ...]
    state: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadDims:
    """The sizes a head is built for.

    Args:
        vocab_size: V.
        layer_dims: widths of Hidden.layers, bottom to top, without the embedding output.
        d_embed: E, the width of the backbone's input embedding and of the vectors that meet the output matrix.
        token_counts: (V,) counts of the training split, for heads that need frequencies; None while only counting.
    """

    vocab_size: int
    layer_dims: tuple[int, ...]
    d_embed: int
    token_counts: Tensor | None = None


@runtime_checkable
class Backbone(Protocol):
    """An nn.Module, built as Cls(vocab_size, *, <parameters>); the keyword-only parameters are its YAML schema."""

    layer_dims: tuple[int, ...]
    embedding: nn.Embedding  # (V, E), offered for tying

    def __call__(self, tokens_BT: Tensor, state: Any = None) -> Hidden: ...


@runtime_checkable
class Incremental(Protocol):
    """What a backbone whose forward carries no state may offer beside it, for sampling token by token."""

    def extend(self, tokens_BT: Tensor, state: Any = None) -> Hidden:
        """Like forward on all tokens so far, but given the (B, T) new ones only, and computing no more than those:
        `state` is what the call before returned, None at the start. The layers hold the new positions. A state that is
        given may be changed: go on from the one that is returned. In evaluation mode.

        Raises: ValueError when the text outgrows the backbone's positions.
        """
        ...


@runtime_checkable
class StartsFromFiles(Protocol):
    """What a backbone's class offers when its weights may come from files; both get the parameters of the suite."""

    @classmethod
    def content(cls, **params: Any) -> str | None:
        """What the files hold, by hash or by a place that never changes: part of the trial's identity. None where it
        starts from none. Touches no network. Raises ValueError with one sentence when a local file is missing or unfit.
        """
        ...

    @classmethod
    def fetch(cls, **params: Any) -> None:
        """Make files that must be downloaded present and verified. Raises OSError or ValueError with one sentence."""
        ...


@runtime_checkable
class Head(Protocol):
    """An nn.Module, built as Cls(dims, embedding, *, <parameters>); the keyword-only parameters are its YAML schema.

    A head whose distribution at a position depends on states before it has an attribute `window: int`, how many
    positions back it reads; without one it reads the position alone.
    """

    def __call__(self, hidden: Hidden) -> "TokenDistribution": ...


@runtime_checkable
class TokenDistribution(Protocol):
    """What a head returns: a distribution over the next token at every position, not yet evaluated.

    The three questions cost differently: training needs one number and its gradient, perplexity needs the target's
    probability, only sampling and diagnostics need the whole vocabulary.
    """

    aux_loss: Tensor | float  # () added to the training loss only, else 0

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() mean_nll + aux_loss, unless the head trains on something else."""
        ...

    def mean_nll(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() nats: sum(weight * nll) / sum(weight); the plain mean without weights."""
        ...

    def nll(self, targets_BT: Tensor) -> Tensor:
        """(B, T) nats, exact."""
        ...

    def log_probs(self) -> Tensor:
        """(B, T, V) nats, normalised over V."""
        ...
