"""The interfaces of backbones, heads, and the distributions that heads return.

Shape letters in the whole project: B batch, T time, D width of a layer, E width of the output embedding,
V vocabulary, K mixtures, F facets, P partitions, N = B*T tokens.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor, dtype, nn

NO_TOKEN = -1  # in the place of a token id: there is no token


class Hidden(NamedTuple):
    """The output of a backbone for one segment.

    Shapes: `layers` has the hidden states of each layer, bottom to top, each (B, T, D_l). A head that reads one layer
    reads layers[-1].
    `state` is the recurrent state for the next segment (a tensor or nested tuples of tensors), or None.
    `undropped` is the top layer before its dropout, for `train: {tar: ...}`; None where a backbone does not return it.
    """

    layers: tuple[Tensor, ...]
    state: object = None
    undropped: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLayer:
    """The output layer that a backbone was pretrained with: the logits of the top state h are phi(W h + b).

    Args:
        weight: W (V, D). A factor of the model's logits is part of it.
        bias: b (V,), or None.
        softcap: c of phi(z) = c tanh(z / c); None for phi(z) = z.
    """

    weight: Tensor
    bias: Tensor | None = None
    softcap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadDims:
    """The sizes that a head is built for.

    Args:
        vocab_size: V.
        layer_dims: the widths D_l of Hidden.layers, bottom to top; the output of the embedding is not one of them.
        d_embed: E, the width of the backbone's input embedding and of the vectors that are multiplied by the output
            matrix.
        token_counts: (V,) token counts of the training split, for heads that need frequencies. None where a head is
            built only to count its parameters.
        token_bytes: (V,) the bytes of each token's text, b"" for a token without text, for heads
            that need them. None where a head is built only to count its parameters, and where tokens
            do not stand for text.
        pretrained: the output layer that a backbone was pretrained with, or None; a head may start from it.
    """

    vocab_size: int
    layer_dims: tuple[int, ...]
    d_embed: int
    token_counts: Tensor | None = None
    token_bytes: tuple[bytes, ...] | None = None
    pretrained: OutputLayer | None = None


@runtime_checkable
class Backbone(Protocol):
    """An nn.Module that is built as Cls(vocab_size, *, <parameters>).

    The keyword-only parameters are its YAML schema. A backbone that reads a limited number of tokens has an attribute
    `num_positions: int`; a plan with longer segments is refused.
    """

    layer_dims: tuple[int, ...]
    embedding: nn.Embedding  # (V, E), the input embedding; a head may use it as its output matrix

    def __call__(self, tokens_BT: Tensor, state: object = None) -> Hidden: ...


@runtime_checkable
class Incremental(Protocol):
    """An optional method of a backbone whose `forward` carries no state: sampling token by token with cached values."""

    def extend(self, tokens_BT: Tensor, state: object = None) -> Hidden:
        """Compute the hidden states of (B, T) new tokens, as `forward` on all tokens so far would, in evaluation mode.

        Args:
            state: the `state` that the previous call returned, or None at the start of the text. It may be changed in
                place: continue with the returned state.
        Returns: a Hidden whose layers hold the new positions only.
        Raises: ValueError when the text is longer than the backbone's number of positions.
        """
        ...


@runtime_checkable
class Bidirectional(Protocol):
    """An optional method of a backbone: states that have read the text from right to left.

    With it, training minimises the mean of two losses with one head. From the left: `forward` of the inputs predicts
    the targets. From the right: `reversed_states` of the targets, the last one first, predicts the inputs.
    """

    def reversed_states(self, tokens_BT: Tensor) -> Hidden:
        """Map (B, T) token ids, the last of the text first, to hidden states in the same order, with the widths of
        `layer_dims`. A position sees the ids before it and its own. No state is carried.
        """
        ...


@runtime_checkable
class StartsFromFiles(Protocol):
    """Class methods of a backbone whose weights may come from files.

    Both get the backbone's parameters from the suite.
    """

    @classmethod
    def content(cls, **params: object) -> str | None:
        """Return the identity of the weights: a hash of the files, or an address whose content never changes. It is
        part of the trial's id. None for random weights. Makes no network access.

        Raises: ValueError with one sentence when a local file is missing or unsuitable.
        """
        ...

    @classmethod
    def fetch(cls, **params: object) -> None:
        """Download the files if they are missing, and verify them. Raises OSError or ValueError with one sentence."""
        ...


@runtime_checkable
class Frozen(Protocol):
    """An optional class method of a backbone whose weights may stay as they are. Its hidden states are then computed
    once for each block of a text, and kept in files (harness/pretrained/frozen.py). Trials read the files.

    Such a backbone has no parameters, and `forward` loads the weights when it is called. Besides the attributes of a
    Backbone it has `shapes`, a module on the meta device with the parameters that it does not hold.
    """

    @classmethod
    def is_frozen(cls, **params: object) -> bool:
        """Return whether the backbone with these parameters is frozen."""
        ...

    @classmethod
    def state_of_token(cls, **params: object) -> tuple[int, dtype]:
        """Return how many numbers the state of a token has in the files, and their type. They are the layers of
        Hidden, side by side.
        """
        ...


@runtime_checkable
class Head(Protocol):
    """An nn.Module that is built as Cls(dims, embedding, *, <parameters>). The keyword-only parameters are its YAML
    schema.

    A head whose distribution at a position also depends on the hidden states of previous positions has an attribute
    `window: int`: how many positions back it reads. A head without this attribute reads the position only.
    """

    def __call__(self, hidden: Hidden) -> "TokenDistribution": ...


@runtime_checkable
class FollowsTraining(Protocol):
    """An optional attribute of a head, or of a module in it, whose loss changes in the course of training.

    `progress` is a buffer. Training writes the share of its steps that is done to it, in place, before each step: 0
    before the first one, below 1 before the last one, and 1 in a second stage (`train: {finetune: ...}`). A captured
    step reads it, and it is part of the saved weights. harness.fading has a factor that falls with it.
    """

    progress: Tensor


def followers(head: nn.Module) -> list[nn.Module]:
    """Return the modules of a head that follow training (FollowsTraining).

    Raises: TypeError where `progress` is no buffer of one floating-point number.
    """
    found = []
    for module in head.modules():
        # Not isinstance(): from Python 3.12 on it does not see an nn.Module's buffers.
        progress = getattr(module, "progress", None)
        if progress is None or callable(progress):
            continue
        if progress is not dict(module.named_buffers(recurse=False)).get("progress") or progress.shape != ():
            raise TypeError(f"{type(module).__name__}.progress must be a buffer, a tensor () of a floating-point type")
        if not progress.is_floating_point():
            raise TypeError(f"{type(module).__name__}.progress must have a floating-point type, got {progress.dtype}")
        found.append(module)
    return found


@runtime_checkable
class MayBeControl(Protocol):
    """An optional class method of a head that computes a plain softmax of the state for some parameters.

    A suite's rows of such heads are its controls: a head is called better only if it is better than each of them
    (harness docs statistics). A head without the method is no control, unless the suite says so.
    """

    @classmethod
    def is_control(cls, **params: object) -> bool:
        """Return whether the head with these parameters, defaults included, is a plain softmax of the state. Tied
        weights do not count here: whether tying is the claim depends on the other rows.
        """
        ...


@runtime_checkable
class CountsText(Protocol):
    """An optional method of a head that counts the training text instead of learning by gradient steps."""

    def count(self, train_N: Tensor, line_end: int | None) -> dict[str, float]:
        """Fit the head to a text. The same text gives the same head. What was counted is part of the state dict.

        Args:
            train_N: (N,) token ids of the training split. No other split is given to a head.
            line_end: the id of the token at the end of each line, or None if tokens are not the words of lines.
        Returns: metrics of the table in harness/records/metrics.py.
        Raises: ValueError with one sentence when the text is unsuitable.
        """
        ...


@runtime_checkable
class TokenDistribution(Protocol):
    """The output of a head: a distribution over the next token at every position. Its methods evaluate it.

    The methods have different costs. Training needs one number and its gradient, and perplexity needs the probability
    of the target. Only sampling and diagnostics need the probabilities of the whole vocabulary.
    """

    aux_loss: Tensor | float  # () a term that is added to the training loss only; 0 if there is none

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() the loss that training minimises: mean_nll + aux_loss, unless the head defines another loss."""
        ...

    def mean_nll(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() the mean negative log-likelihood in nats: sum(weight * nll) / sum(weight), or without weights the mean."""
        ...

    def nll(self, targets_BT: Tensor) -> Tensor:
        """(B, T) the negative log-likelihood of every target, in nats, exact."""
        ...

    def log_probs(self) -> Tensor:
        """(B, T, V) log-probabilities in nats, normalised over V."""
        ...


def require_distribution(found: object, who: str) -> None:
    """Check what a head's forward has returned.

    Raises: TypeError, with `who` and what to return instead, unless it has the members of a TokenDistribution.
    """
    if isinstance(found, TokenDistribution):
        return
    members = ("training_loss", "mean_nll", "nll", "log_probs", "aux_loss")
    missing = [name for name in members if not hasattr(found, name)]
    without = f" without {', '.join(missing)}" if len(missing) < len(members) else ""
    raise TypeError(
        f"{who} returned {_described(found)}{without} from forward; return Logits(z) or Mixture(...) "
        "of harness.distributions"
    )


def require_hidden(found: object, who: str) -> None:
    """Check what a backbone's forward has returned. Raises: TypeError, with `who` and what to return instead."""
    if not isinstance(found, Hidden):
        raise TypeError(
            f"{who} returned {_described(found)} from forward; return Hidden((states,), state) of harness.protocols"
        )


def _described(value: object) -> str:
    """'a Tensor of shape (2, 4, 13)', 'a tuple', 'None'."""
    if value is None:
        return "None"
    shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
    return f"a {type(value).__name__}{shape}"


@runtime_checkable
class TakesZLoss(Protocol):
    """An optional attribute of a TokenDistribution, which `train: {z_loss: ...}` needs.

    Training sets it before it calls `training_loss`, which then adds z_loss times the mean over tokens of (log Z)^2. Z
    is the normaliser of the softmax. A distribution of several softmaxes says which of them count.
    """

    z_loss: float


@runtime_checkable
class HasStatistics(Protocol):
    """An optional method of a TokenDistribution, which `measure: {calibration: true}` needs."""

    def statistics(self) -> object:
        """Return harness.distributions.Statistics of each position, without gradients."""
        ...
