"""The training step as one CUDA graph: the 350 or so kernels of a small model's step are launched as one.

A graph replays what was recorded, on the memory that it was recorded with. So the segment is copied into buffers, the
carried state is in buffers that the graph itself writes, the learning rate is a tensor on the device, and the random
generator's seed and offset are read at every replay. A segment of another shape, the shorter last one of an epoch, is
computed by an eager step with the same optimizer.

A graph counts only after it agreed with eager steps of the same trial: `fault_of_graph` makes steps and replays from
one state and compares them.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from harness.containment import first_line
from harness.corpora.batching import Segment
from harness.errors import ExecutionError
from harness.kernels import choice
from harness.training.parts import Parts, step_parts, unchanged
from harness.training.step import EagerStep, Record, Step, Work, changed

PART = "graph"  # its name among the parts for GPUs (harness/kernels/choice.py)
STEPS = 4  # the first of an epoch is eager where a state is carried; the last two have another learning rate
# A GPU adds up in any order, 1e-6 a step. Where a gradient is only rounding, Adam makes a whole step of it. Such
# weights are few, so all are compared together. Other inputs, masks or rates change them by a tenth and more.
SAME = {
    "the summed loss": 1e-4,
    "the carried state": 1e-2,
    "the random stream": 0.0,
    "the change of the weights": 1e-2,
    "the optimizer's state": 1e-2,
}
WARM_UPS = 3  # what libraries choose and allocate in their first calls must not be recorded


def graphed(
    step: EagerStep,
    segment: Segment,
    parts: Parts | None = None,
    *,
    log: Callable[[str], None],
    record: Record | None = None,
) -> Step:
    """The step as a graph for segments of this one's shape. With `cuda_graph: auto` it is the step itself when there is
    no GPU, when the step cannot be captured, or when the graph's replays are not what eager steps are.

    Args:
        parts: of training, which recording must not change; by default those that a step changes.
        log: receives the reason when the step stays eager.
        record: makes the graph; by default CUDA's, where the model is on a GPU.
    Raises: with `cuda_graph: on` any error of the capture, and ExecutionError when the graph is left out.
    """
    if record is None and step.loss_sum.is_cuda:
        record = captured
    if step.train.cuda_graph == "off" or record is None:
        return step
    if step.train.random_lengths is not None and step.train.cuda_graph == "auto":
        log("training steps are eager: segments have random lengths, and a CUDA graph is of one length")
        return step
    forms, parts = choice.current(), parts or step_parts(step.model, step.optimizer)
    reason = forms.left_out.get(PART)
    if reason is None:
        try:
            graph = GraphStep(step, segment, record, parts)
            reason = fault_of_graph(graph, step, segment, parts)
        except Exception as error:  # of any kind: one that is not due to the capture is raised by the eager step, too
            if step.train.cuda_graph == "on":
                raise
            log(f"training steps are eager: they cannot be captured as a CUDA graph ({first_line(_first(error))})")
            return step
        if not reason:
            return graph
        forms.leave_out(PART, reason)
    if step.train.cuda_graph == "on":
        raise ExecutionError(f"train.cuda_graph is on, but {reason}; set train.cuda_graph to auto or off")
    log(f"training steps are eager: {reason}")
    return step


def fault_of_graph(graph: "GraphStep", eager: EagerStep, segment: Segment, parts: Parts) -> str:
    """What is wrong with replays of a recorded step: a phrase, or '' when they do what eager steps do.

    Both make STEPS steps from the present state, on segments that are not the recorded one: its tokens, moved. Some
    steps begin a random stream, as in training, and some go on with the one before, so that a replay must advance it.
    The learning rate changes. Compared are the summed loss, the carried state and the next random numbers after each
    step, and at the end the weights and the optimizer's state. All parts of training stay unchanged.
    """
    found = []
    for step in (eager, graph):
        with unchanged(parts), _quiet():
            before = _on_cpu(eager.parameters)
            after_steps = list(_advanced(step, eager, segment))
            weights = [now - then for now, then in zip(_on_cpu(eager.parameters), before, strict=True)]
            states = (value for state in eager.optimizer.state.values() for value in state.values())
            state = _on_cpu([value for value in states if isinstance(value, Tensor)])
            found.append([*after_steps, {"the change of the weights": weights, "the optimizer's state": state}])
        step.begin_epoch()
        eager.optimizer.zero_grad(set_to_none=True)
    for number, (expected, replayed) in enumerate(zip(*found, strict=True), start=1):
        for what, tensors in expected.items():
            if not _same(replayed[what], tensors, SAME[what]):
                return f"after {min(number, STEPS)} steps {what} of a CUDA graph is not that of eager steps"
    return ""


def _advanced(step: Step, eager: EagerStep, segment: Segment) -> Iterator[dict[str, list[Tensor]]]:
    """Make STEPS steps. What there is after each."""
    step.begin_epoch()
    for number in range(STEPS):
        if number % 2 == 0:
            torch.manual_seed(number)
        if number == STEPS // 2:
            for group in eager.optimizer.param_groups:
                group["lr"].mul_(0.5)
        step(segment.each(partial(torch.roll, shifts=number + 1, dims=1)))
        yield {
            "the summed loss": _on_cpu([step.loss_sum]),
            "the carried state": _on_cpu(tensors_of(step.state_dict()["carried"])),
            "the random stream": _on_cpu([torch.rand(3, device=step.loss_sum.device)]),
        }


def _on_cpu(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.detach().to("cpu", torch.float64, copy=True) for tensor in tensors]


def _same(found: list[Tensor], expected: list[Tensor], bound: float) -> bool:
    """Whether the difference of all tensors together is at most so much of them, in norm."""
    if [each.shape for each in found] != [each.shape for each in expected]:
        return False
    differences = [a - b for a, b in zip(found, expected, strict=True)]
    return _norm(differences) <= bound * _norm(expected)  # so NaN is another value, too


def _norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(each.square().sum()) for each in tensors))


class GraphStep:
    """A recorded EagerStep, replayed for segments of the shape of the one given. Recording it leaves all parts of
    training unchanged.

    Raises: TypeError or ValueError when the backbone's state is not a fixed set of tensors, and what recording raises.
    """

    resumable, graphed = True, True

    def __init__(self, eager: EagerStep, segment: Segment, record: Record, parts: Parts | None = None):
        self._eager, self.loss_sum = eager, eager.loss_sum
        self._segment = segment.each(torch.clone)
        self._carried: Any = None  # buffers of the state; None: nothing is carried
        self._fresh = True
        self.begin_epoch()
        try:
            with unchanged(parts or step_parts(eager.model, eager.optimizer)), _quiet():
                state = eager.advance(self._segment, None)
                if tensors_of(state) and eager.carries:
                    self._carried = changed(state, Tensor.clone)
                self._replay = record(lambda: self._advance(self._segment, self._carried))
        finally:
            eager.optimizer.zero_grad(set_to_none=True)

    def begin_epoch(self) -> None:
        self._eager.begin_epoch()
        self._fresh = True

    def __call__(self, segment: Segment) -> None:
        without_state = self._fresh and self._carried is not None
        if without_state or segment.inputs.shape != self._segment.inputs.shape:
            self._advance(segment, None if without_state else self._carried)
        else:
            for buffer, tensor in zip(self._segment, segment, strict=True):
                if buffer is not None:
                    buffer.copy_(tensor)
            self._replay()
        self._fresh = False

    def state_dict(self) -> dict[str, Any]:
        return {"loss_sum": self.loss_sum, "carried": None if self._fresh else self._carried}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._eager.load_state_dict({**state, "carried": None})
        self._fresh = False
        for buffer, tensor in zip(tensors_of(self._carried), tensors_of(state["carried"]), strict=True):
            buffer.copy_(tensor)

    def _advance(self, segment: Segment, state: Any) -> None:
        state = self._eager.advance(segment, state)
        if self._carried is None:
            return
        for buffer, tensor in zip(tensors_of(self._carried), tensors_of(state), strict=True):
            if buffer.shape != tensor.shape:
                raise ValueError(f"the carried state grows from {tuple(buffer.shape)} to {tuple(tensor.shape)}")
            buffer.copy_(tensor)


@dataclass(frozen=True, slots=True)
class Replay:
    """A recorded graph. It reads and writes the memory of the tensors of `work`, so it keeps them."""

    graph: torch.cuda.CUDAGraph
    work: Work

    def __call__(self) -> None:
        """Do the recorded work again."""
        self.graph.replay()


def captured(work: Work, *, pool: Any = None, stream: torch.cuda.Stream | None = None) -> Replay:
    """Run `work` WARM_UPS times on a separate stream, then record it there as a CUDA graph.

    Args:
        pool, stream: as torch.cuda.graph takes them; by default a graph has both of its own.
    Raises: CUDA's errors.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream() if stream is None else stream
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # around the capture, too: a failed one leaves its stream as the current one
        for _ in range(WARM_UPS):
            work()
        try:
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                work()
        except Exception:  # a failed capture leaves the generator in its recording state, which a copy has not
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(generator.clone_state())
            raise
    torch.cuda.current_stream().wait_stream(stream)
    return Replay(graph, work)


def tensors_of(state: Any) -> list[Tensor]:
    """The tensors of a carried state, in order. Raises TypeError for anything else in it."""
    if state is None:
        return []
    if isinstance(state, Tensor):
        return [state]
    if not isinstance(state, tuple):
        raise TypeError(
            f"the state of the backbone has a value of type {type(state).__name__}; a CUDA graph needs tensors"
        )
    return [tensor for part in state for tensor in tensors_of(part)]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warning that a capturable optimizer runs uncaptured, as it does during the warm-up."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This instance was constructed with capturable=True")
        yield


def _first(error: BaseException) -> BaseException:
    """The first error of a chain: leaving a failed capture raises further ones."""
    while error.__context__ is not None:
        error = error.__context__
    return error
