"""The model of a trial: a backbone and a head from the registries, combined into one module."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from harness.containment import guarded
from harness.corpora.batching import Segment
from harness.errors import ComponentError
from harness.protocols import (
    Bidirectional,
    CountsText,
    HeadDims,
    Hidden,
    TokenDistribution,
    require_distribution,
    require_hidden,
)
from harness.random_streams import own_generators, seeded
from harness.registry import BACKBONES, HEADS


class Chosen(Protocol):
    """A component as a suite asks for it: its registry name, and the parameters that are given (ComponentSpec)."""

    name: str
    params: dict[str, Any]


class ModelChoice(Protocol):
    """A backbone and a head as a suite asks for them (TrialSpec)."""

    backbone: Chosen
    head: Chosen


class LanguageModel(nn.Module):
    """A backbone and a head.

    Args:
        names: the names of the backbone and of the head in messages.
    """

    def __init__(self, backbone: nn.Module, head: nn.Module, names: tuple[str, str] = ("backbone", "head")):
        super().__init__()
        self.backbone, self.head = backbone, head
        self.backbone_name, self.head_name = names
        self._handles = handles_of(backbone)
        self._counted = frozenset(name for name, _ in self.named_parameters())

    @property
    def taken_over(self) -> str:
        """What the head has done to the backbone since the model was built, as `taken_over` says it."""
        return taken_over(self._handles, self.backbone, self.head_name)

    @property
    def made_late(self) -> str:
        """The first parameter that was made after the model was built; '' for none. It is not counted nor trained."""
        return min((name for name, _ in self.named_parameters() if name not in self._counted), default="")

    def hidden(self, segment: Segment, state: object = None) -> Hidden:
        """Return the states of a segment's inputs: those that the segment brings, or what the backbone computes.

        Raises: TypeError when the backbone returns something else than its protocol says, and what it raises.
        """
        if segment.states is not None:
            return Hidden(segment.states.split(self.backbone.layer_dims, dim=-1))
        hidden = self.backbone(segment.inputs, state)
        require_hidden(hidden, self.backbone_name)
        return hidden

    def forward(self, segment: Segment, state: object = None) -> tuple[TokenDistribution, object]:
        """Map a segment's inputs and the carried state to the distribution of the next token and the new state.

        Raises: TypeError when a component returns something else than its protocol says, and what the components raise.
        """
        hidden = self.hidden(segment, state)
        return self.distribution(hidden), hidden.state

    def distribution(self, hidden: Hidden) -> TokenDistribution:
        """Return the distribution of the next token that the head makes of hidden states."""
        found = self.head(hidden)
        if not hasattr(found, "training_loss"):  # the whole check takes 10 us; `harness check` makes it
            require_distribution(found, self.head_name)
        return found

    @property
    def reads_from_the_right(self) -> bool:
        """Whether the texts of this model begin with their last token."""
        return isinstance(self.backbone, FromTheRight)

    def from_the_right(self) -> "LanguageModel | None":
        """The same modules, reading from right to left (Segment.reversed); None where the backbone cannot."""
        if not isinstance(self.backbone, Bidirectional):
            return None
        names = self.backbone_name, self.head_name
        return LanguageModel(FromTheRight(self.backbone), self.head, names)


class Handles(NamedTuple):
    """What decides what a backbone computes and learns, besides its weights.

    Args:
        learned: the names of the parameters that are learned.
        hooks: of the embedding, which a head is given: its class, which a parametrisation changes, the number of its
            hooks, and whether its `forward` was replaced.
    """

    learned: frozenset[str]
    hooks: tuple[Any, ...]


def handles_of(backbone: nn.Module) -> Handles:
    """Return the handles of a backbone as they are now."""
    learned = frozenset(name for name, each in backbone.named_parameters() if each.requires_grad)
    embedding, of_weight = backbone.embedding, backbone.embedding.weight._backward_hooks
    kinds = embedding._forward_hooks, embedding._forward_pre_hooks, embedding._backward_hooks, of_weight or ()
    kinds += embedding._backward_pre_hooks, getattr(embedding.weight, "_post_accumulate_grad_hooks", None) or ()
    return Handles(learned, (type(embedding), *map(len, kinds), "forward" in vars(embedding)))


def taken_over(before: Handles, backbone: nn.Module, head_name: str) -> str:
    """Return what a head has done to the backbone that is not a head's; '' for nothing.

    A head is given the backbone's embedding, and may use its matrix. If it freezes weights or puts a hook on a module,
    the backbone is another one than under the other heads, and the comparison is not of heads.
    """
    now = handles_of(backbone)
    if now.learned != before.learned:
        changed = sorted(now.learned ^ before.learned)
        return f"{head_name} has changed whether the backbone's {changed[0]} is learned"
    if now.hooks != before.hooks:
        return f"{head_name} has put a hook on the backbone's embedding"
    return ""


def _shares(head: nn.Module, backbone: nn.Module, head_name: str) -> str:
    """Return which parameter of the backbone a head trains in another way than by its loss; '' for none."""
    named = dict(backbone.named_parameters())
    of_backbone = {id(each): name for name, each in named.items()}
    for module in head.modules():
        own = dict(module.named_parameters())
        rates = getattr(module, "learning_rates", {})
        for name in rates if isinstance(rates, Mapping) else ():
            if (shared := of_backbone.get(id(own.get(name)))) is not None:
                return f"{head_name} has given the backbone's {shared} a learning rate of its own"
    if lazy := next((name for name, each in head.named_parameters() if is_lazy(each)), ""):
        return f"{head_name} has a parameter, {lazy}, whose shape is not known when it is built"
    places = {each.untyped_storage()._cdata: name for name, each in named.items()}
    for name, each in head.named_parameters():
        if id(each) not in of_backbone and (shared := places.get(each.untyped_storage()._cdata)) is not None:
            return f"{head_name} has a parameter, {name}, in the memory of the backbone's {shared}: both are trained"
    return ""


class FromTheRight(nn.Module):
    """A bidirectional backbone as one that reads texts which begin with their last token."""

    def __init__(self, backbone: nn.Module):
        super().__init__()
        self.backbone = backbone
        self.layer_dims, self.embedding = backbone.layer_dims, backbone.embedding

    def forward(self, tokens_BT: Tensor, state: object = None) -> Hidden:
        """Map (B, T) token ids to hidden states. No state is carried, whatever is given."""
        return self.backbone.reversed_states(tokens_BT)


def build_backbone(spec: Chosen, vocab_size: int) -> nn.Module:
    """Build a backbone by its name. Raises what its constructor raises, and ComponentError."""
    cls = BACKBONES.get(spec.name)
    with _constructing(f"backbone {spec.name}"):
        return cls(vocab_size, **spec.params)


@contextmanager
def _constructing(who: str) -> Iterator[None]:
    """Within it a component is built. Raises ComponentError when it seeds torch: all seeds would begin alike."""
    seed = torch.initial_seed()
    with guarded(who, "its constructor"):
        yield
    if torch.initial_seed() != seed:
        raise ComponentError(
            f"{who} seeds torch's random generator in its constructor, so that it would be the same under every seed "
            "of the suite; take the torch.manual_seed out: the harness seeds each trial"
        )


def build_head(
    spec: Chosen,
    backbone: nn.Module,
    vocab_size: int,
    token_counts: Tensor | None = None,
    token_bytes: tuple[bytes, ...] | None = None,
) -> nn.Module:
    """Build a head by its name, for the widths of a backbone.

    A head may change the backbone's embedding only by a parameter that the suite gives it, whose name it writes into
    the attribute `changed_by`: of the matrix, for its first values, or of the embedding, for a hook. So the suite shows
    it.

    Raises what its constructor raises, and ComponentError, also for a head that changes the backbone otherwise.
    """
    dims = HeadDims(
        vocab_size=vocab_size,
        layer_dims=tuple(backbone.layer_dims),
        d_embed=backbone.embedding.embedding_dim,
        token_counts=token_counts,
        token_bytes=token_bytes,
        pretrained=getattr(backbone, "output_layer", None),
    )
    cls, name, embedding = HEADS.get(spec.name), f"head {spec.name}", backbone.embedding
    before = handles_of(backbone)
    start_VE = None if embedding.weight.is_meta else embedding.weight.detach().clone()
    with _constructing(name):
        head = cls(dims, embedding, **spec.params)
    _refuse_other_count(head, name)
    if getattr(embedding, "changed_by", None) in spec.params:
        before = before._replace(hooks=handles_of(backbone).hooks)
    fault = taken_over(before, backbone, name) or _shares(head, backbone, name)
    is_same = start_VE is None or torch.equal(embedding.weight, start_VE)
    if not is_same and getattr(embedding.weight, "changed_by", None) not in spec.params:
        fault = f"{name} has changed the first values of the backbone's embedding"
    if fault:
        raise ComponentError(
            f"{fault}; a head may use the embedding's matrix, and must leave the backbone as it is, unless a parameter "
            "of the suite asks for it (harness docs heads: `changed_by`)"
        )
    return head


def _refuse_other_count(head: nn.Module, head_name: str) -> None:
    """Raise ComponentError where a head that counts text cannot be called as the harness calls it."""
    if not isinstance(head, CountsText):
        return
    given = signature(head.count)
    try:
        given.bind(None, None)
    except TypeError:
        raise ComponentError(
            f"{head_name}: its method is count({', '.join(given.parameters)}), expected count(train_N, line_end): the "
            "token ids of the training split, and the id that ends a line; no other split is given to a head"
        ) from None


def build(
    backbone: Chosen,
    head: Chosen,
    *,
    vocab_size: int,
    seed: int,
    token_counts: Tensor | None = None,
    token_bytes: tuple[bytes, ...] | None = None,
) -> LanguageModel:
    """Build the model of a trial.

    The backbone is initialised from the seed's stream 'backbone' and the head from its stream 'head'. So two heads that
    are compared under one seed start with equal backbones, and with equal output layers if these have one shape
    (`output_layer` in harness/distributions.py). The generators of Python and numpy are set to streams of the seed,
    too.
    """
    names = f"backbone {backbone.name}", f"head {head.name}"
    with own_generators(seed, torch.device("cpu")):
        with seeded(seed, "backbone"):
            built = build_backbone(backbone, vocab_size)
        with seeded(seed, "head"):
            of_head = build_head(head, built, vocab_size, token_counts, token_bytes)
            return LanguageModel(built, of_head, names)


def components(spec: ModelChoice) -> str:
    """Return the name of a trial's two components in messages: 'head mos on backbone lstm'."""
    return f"head {spec.head.name} on backbone {spec.backbone.name}"


def count_parameters(model: LanguageModel) -> tuple[int, int]:
    """Return the numbers of parameters (total, head).

    Tied parameters are counted once, as parameters of the backbone. Those of a frozen backbone count, too. A complex
    parameter is two numbers.
    """
    shared = {id(model.backbone.embedding.weight), *map(id, model.backbone.parameters())}
    own = sum(_numbers(parameter) for parameter in model.head.parameters() if id(parameter) not in shared)
    return sum(map(_numbers, _whole(model.backbone).parameters())) + own, own


def count_non_embedding(backbone: nn.Module) -> int:
    """Return N, the number of a backbone's parameters without those of its embeddings, of tokens and of positions,
    which are only looked up. Those of a frozen backbone count, too.

    Source: Kaplan et al. (2020), arXiv:2001.08361, section 1.3.
    """
    whole = _whole(backbone)
    looked_up = {id(each.weight) for each in whole.modules() if isinstance(each, nn.Embedding)}
    return sum(_numbers(each) for each in whole.parameters() if id(each) not in looked_up)


def _whole(backbone: nn.Module) -> nn.Module:
    """A module with all parameters of a backbone: a frozen one holds none."""
    return getattr(backbone, "shapes", backbone)


def _numbers(tensor: Tensor) -> int:
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def fingerprint(model: nn.Module) -> dict[str, int]:
    """Return a number for each parameter and buffer of a model's weights, which changes with any one of its bits."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    weights = {name: each for name, each in model.state_dict().items() if isinstance(each, Tensor)}
    sums = []
    for tensor in weights.values():
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        bits = real.view(kinds[real.element_size()])
        # the sum of int32 may overflow, as bits of a hash may; in int64 it takes 70 times as long
        sums.append(bits.sum(dtype=torch.int32 if bits.dtype == torch.int32 else torch.int64).long())
    return dict(zip(weights, torch.stack(sums).tolist(), strict=True)) if sums else {}


def changed_since(before: dict[str, int], model: nn.Module) -> str:
    """Return the name of a parameter or buffer that is another than when `before` was its fingerprint; '' for none."""
    return next((name for name, each in fingerprint(model).items() if each != before.get(name)), "")


def buffers_of(model: nn.Module, *, saved: bool = True) -> dict[str, Tensor]:
    """Return copies of the buffers that belong to a model's weights, by name; not `saved`: of the other ones."""
    weights = model.state_dict()
    return {name: buffer.clone() for name, buffer in model.named_buffers() if (name in weights) == saved}


def count_changed(before: dict[str, Tensor], now: dict[str, Tensor]) -> int:
    """Return how many numbers of buffers are others now: all of a buffer that is new or has another shape."""
    changed = 0
    for name, tensor in now.items():
        old = before.get(name)
        is_alike = old is not None and old.shape == tensor.shape and old.dtype == tensor.dtype
        changed += _numbers(tensor[_differs(tensor, old)] if is_alike else tensor)
    return changed


def _differs(tensor: Tensor, old: Tensor) -> Tensor:
    """Where two tensors differ. NaN is as NaN."""
    return (tensor != old) & ~((tensor != tensor) & (old != old))


@contextmanager
def on_meta() -> Iterator[None]:
    """Build models on the meta device within the block: no memory is allocated, and nothing is initialised.

    For counting parameters, and for errors that only a constructor finds.
    """
    with torch.device("meta"), _NoInitialisation():
        yield


class _NoInitialisation(TorchFunctionMode):
    """Skip what fills tensors: torch would import its compiler for it, which takes a second or more."""

    FILLS = (Tensor.uniform_, Tensor.normal_)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__module__", None) == "torch.nn.init" or func in self.FILLS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
