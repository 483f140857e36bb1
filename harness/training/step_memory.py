"""How much memory a training step needs at its peak, computed without allocating it.

The step itself (harness/training/step.py) is run twice on tensors that have sizes and a device but no content (torch's
fake tensors), and every storage is counted from where it is made to where it is freed. So it holds for any backbone and
head, optimizer, precision and number of parts, and attention takes the form that it takes on that device.

Not counted: logits that a GPU stores all at once (harness/kernels/forms.py), what libraries keep for themselves (Python
and torch some 400 MiB, a CUDA context as much), what an operation uses within itself, and what an allocator keeps of
freed blocks: on the CPU glibc's holds on to another quarter or more, unless MALLOC_MMAP_THRESHOLD_=65536 is in the
environment (results/showcase/tables/plan_memory_*.md).
"""

import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness import kernels
from harness.containment import contained, first_line
from harness.corpora.batching import Segment
from harness.model import LanguageModel, build, on_meta
from harness.plan.specs import ComponentSpec, TrainSpec, TrialSpec
from harness.registry import CORPORA
from harness.training.averaging import make_averaging
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep

ASKED = torch.ops.aten._local_scalar_dense.default  # what .item() and bool() ask a tensor for


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Bytes alive at the peak of a training step, each where it was made.

    Args:
        weights: parameters and buffers.
        gradients: those there are: of earlier parts of the batch, and all that the backward pass has made; with
            `data_parallel` also its workers' buffers for exchanging them.
        optimizer: its state, and the average of the weights.
        backbone: of its forward pass: activations kept for the backward pass, and what it works on.
        head: of the head and the loss: activations, the kernel's buffers, gradients made in the forward pass.
    """

    weights: int
    gradients: int
    optimizer: int
    backbone: int
    head: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values())


def plan_trials(trials: tuple[TrialSpec, ...], device: torch.device) -> tuple[dict[str, StepMemory], list[str]]:
    """The memory of each trial by id, and a sentence for each model whose memory cannot be computed. Trials of the same
    model and training share a calculation.
    """
    vocab_sizes: dict[str, int] = {}
    known: dict[tuple, StepMemory | None] = {}
    found, unknown = {}, []
    for trial in trials:
        if (name := str(trial.corpus)) not in vocab_sizes:
            vocab_sizes[name] = CORPORA.get(trial.corpus.name)(**trial.corpus.params).facts().vocab_size
        key = (vocab_sizes[name], str(trial.backbone), str(trial.head), trial.train.model_dump_json())
        if key not in known:
            try:
                known[key] = plan_step(trial.backbone, trial.head, trial.train, vocab_size=key[0], device=device)
            except ValueError as error:
                known[key] = None
                unknown.append(str(error))
        if known[key] is not None:
            found[trial.id] = known[key]
    return found, unknown


def plan_step(
    backbone: ComponentSpec, head: ComponentSpec, train: TrainSpec, *, vocab_size: int, device: torch.device
) -> StepMemory:
    """A step of one worker; of `data_parallel` workers each computes its rows of the batch.

    Raises: ValueError with the reason where a component cannot run without content, as one whose shapes depend on it.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # here: with it torch imports its compiler, a second

    try:
        with contained(f"{head} on {backbone}"):
            with on_meta():
                counts = torch.ones(vocab_size, dtype=torch.int64, device="cpu")
                model = build(backbone, head, vocab_size=vocab_size, seed=0, token_counts=counts)
            rows = train.batch_size // train.data_parallel
            with FakeTensorMode(allow_fallback_kernels=False), kernels.sizes_only(), _stepwise_recurrence():
                tokens_BT = torch.empty(rows, train.longest_segment, dtype=torch.int64, device=device)
                # the lean loss asks whether its gradient is anything but 1: it is where a step has several parts
                with _Counting(tokens_BT, truth=train.accumulation > 1) as counting:
                    _give_device(model, device)
                    _run(model, tokens_BT, train, counting)
    except Exception as error:  # a component may raise any
        raise ValueError(f"{head} on {backbone}: {first_line(error)}") from error
    parts = {part: counting.peak[part] for part in StepMemory.__slots__}
    if train.data_parallel > 1:  # what DistributedDataParallel keeps of them for the exchange
        parts["gradients"] += sum(
            each.numel() * each.element_size() for each in model.parameters() if each.requires_grad
        )
    return StepMemory(**parts)


def _run(model: LanguageModel, tokens_BT: Tensor, train: TrainSpec, counting: "_Counting") -> None:
    """Two steps: the second starts with the optimizer's state, and with what the first has left."""
    optimizer = make_optimizer(model, train)
    counting.enter("optimizer")
    averaging = make_averaging(model, train)
    averaging.begin()
    counting.enter("weights")
    step = EagerStep(model, optimizer, train)
    model.backbone.register_forward_pre_hook(lambda *_: counting.enter("backbone"))
    model.backbone.register_forward_hook(lambda *_: counting.enter("head"))
    optimizer.register_step_pre_hook(lambda *_: counting.enter("optimizer"))
    optimizer.register_step_post_hook(lambda *_: counting.enter("head"))
    step.begin_epoch()
    states = None
    if getattr(model.backbone, "frozen", False):  # a trial reads its states from files
        counting.enter("backbone")
        states = torch.empty(*tokens_BT.shape, sum(model.backbone.layer_dims), device=tokens_BT.device)
        counting.enter("head")
    for _ in range(2):
        step(Segment(tokens_BT, tokens_BT, states=states))


@contextmanager
def _stepwise_recurrence() -> Iterator[None]:
    """Recurrent layers operation by operation: what oneDNN's keep for the backward pass cannot be seen."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _give_device(model: nn.Module, device: torch.device) -> None:
    """Replace the meta device's tensors by the device's, in place; one that several modules share stays shared."""
    made: dict[int, Tensor] = {}
    replaced = []  # kept until all are: an id is that of a tensor that lives
    for module in model.modules():
        for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            if id(tensor) not in made:
                empty = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
                shared = isinstance(tensor, nn.Parameter)
                made[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if shared else empty
            replaced.append(tensor)
            setattr(module, name, made[id(tensor)])


class _Counting(TorchDispatchMode):
    """Counts the bytes of all storages that are alive, by what made them, and keeps the counts of the peak.

    A tensor's number, as `.item()` reads it, is 0, and its truth value is `truth`. All entries of a tensor count as
    different from 0 where `nonzero` asks for their places. Views of `tokens` are not counted.
    """

    def __init__(self, tokens: Tensor, *, truth: bool):
        super().__init__()
        self._truth = truth
        self.alive: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self._part = "weights"
        given = tokens.untyped_storage()
        self._known: dict[int, weakref.ref] = {id(given): weakref.ref(given)}

    def enter(self, part: str) -> None:
        """What is made from here on is that part's; what the backward pass makes are gradients in any case."""
        self._part = part

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every operation of torch comes through here."""
        from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

        if func.name().startswith("aten::_fused_") and not func._schema.returns:
            return None  # in place; torch has no rule for its sizes, and would run it on numbers
        try:
            made = func(*args, **(kwargs or {}))
        except DataDependentOutputException:
            if func is not ASKED:
                raise
            return self._truth if args[0].dtype == torch.bool else 0
        except DynamicOutputShapeException:
            if func is not torch.ops.aten.nonzero.default:
                raise
            made = args[0].new_empty(args[0].numel(), args[0].dim(), dtype=torch.int64)
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._known:
            return
        part = self._part if torch._C._current_autograd_node() is None else "gradients"

        def free(_: weakref.ref) -> None:
            self.alive[part] -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, free)
        self.alive[part] += size
        if self.alive.total() > self.peak.total():
            self.peak = self.alive.copy()
