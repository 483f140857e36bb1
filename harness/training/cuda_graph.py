"""The training step as one CUDA graph: some 350 kernels of a small model for the price of one launch.

A graph replays what was recorded on the memory it was recorded with. So the segment is copied into buffers, the carried
state lives in buffers that the graph itself writes, the learning rate is a tensor on the device, and the random
generator's seed and offset are read at every replay. What does not fit the recorded shapes, the shorter last segment of
an epoch, is an eager step with the same optimiser.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from harness.containment.calls import first_line
from harness.corpora.batching import Segment
from harness.errors import ExecutionError
from harness.machine import proofs
from harness.training.step import EagerStep, Step

WARM_UPS = 3  # what libraries choose and allocate at their first calls must not be recorded
Work = Callable[[], None]
Record = Callable[[Work], Work]  # work -> a replay of it; work may have run any number of times


def graphed(step: EagerStep, segment: Segment, *, tell: Callable[[str], None], record: Record | None = None) -> Step:
    """The step as a graph for segments like this one: where `cuda_graph` is 'auto', the step itself when it cannot be
    captured, when graphs failed their proof on this GPU (harness/machine/proofs.py), or there is no GPU; `tell` says
    why.

    Args:
        record: makes the graph; by default CUDA's, where the model is on a GPU.
    Raises: with 'on', whatever stands against capture; ExecutionError where graphs failed their proof.
    """
    if step.train.cuda_graph == "off":
        return step
    if record is None and step.loss_sum.is_cuda:
        proof = proofs.proof_for(step.loss_sum.device)
        if "graph" in proof.failed:
            _refuse_demanded(step, proof)
            tell(proof.sentence("graph"))
            return step
        record = captured
    if record is None:
        return step
    try:
        return GraphStep(step, segment, record)
    except Exception as error:  # whatever it is: if it is no matter of capture, the eager step meets it too
        if step.train.cuda_graph == "on":
            raise
        said = first_line(_first(error))
        tell(f"training steps are eager: they cannot be captured as a CUDA graph ({said})")
        return step


def _refuse_demanded(step: EagerStep, proof: proofs.Proof) -> None:
    if step.train.cuda_graph == "on":
        raise ExecutionError(
            f"train.cuda_graph is on, but its proof failed on this machine ({proof.device}): {proof.failed['graph']}; "
            "set train.cuda_graph to auto or off, or type `harness doctor --again` to repeat the proof"
        )


class GraphStep:
    """A recorded EagerStep. Model, optimiser and random generators are as before when it is built.

    Args:
        segment: an example; every segment of its shape is replayed.
    Raises: TypeError or ValueError when the backbone's state is no fixed set of tensors, and what recording raises.
    """

    def __init__(self, eager: EagerStep, segment: Segment, record: Record):
        self._eager, self.loss_sum = eager, eager.loss_sum
        self._inputs, self._targets = segment.inputs.clone(), segment.targets.clone()
        self._carried: Any = None  # buffers of the state; None: nothing is carried
        self._fresh = True
        self.begin_epoch()
        with _unchanged(eager.model, eager.optimizer), _quiet():
            state = eager.advance(self._inputs, self._targets, None)
            if tensors_of(state) and eager.carries:
                self._carried = _cloned(state)
            self._replay = record(lambda: self._advance(self._inputs, self._targets, self._carried))

    def begin_epoch(self) -> None:
        """See Step."""
        self._eager.begin_epoch()
        self._fresh = True

    def __call__(self, inputs_BT: Tensor, targets_BT: Tensor) -> None:
        """See Step. Where a state is carried, an epoch's first step, which has none yet, is eager."""
        without_state = self._fresh and self._carried is not None
        if without_state or inputs_BT.shape != self._inputs.shape:
            self._advance(inputs_BT, targets_BT, None if without_state else self._carried)
        else:
            self._inputs.copy_(inputs_BT)
            self._targets.copy_(targets_BT)
            self._replay()
        self._fresh = False

    def state(self) -> dict[str, Any]:
        """See Step."""
        return {"loss_sum": self.loss_sum, "carried": None if self._fresh else self._carried}

    def resume(self, state: dict[str, Any]) -> None:
        """See Step."""
        self._eager.resume({**state, "carried": None})
        self._fresh = False
        for buffer, tensor in zip(tensors_of(self._carried), tensors_of(state["carried"]), strict=True):
            buffer.copy_(tensor)

    def _advance(self, inputs_BT: Tensor, targets_BT: Tensor, state: Any) -> None:
        state = self._eager.advance(inputs_BT, targets_BT, state)
        if self._carried is None:
            return
        for buffer, tensor in zip(tensors_of(self._carried), tensors_of(state), strict=True):
            if buffer.shape != tensor.shape:
                raise ValueError(f"the carried state grows from {tuple(buffer.shape)} to {tuple(tensor.shape)}")
            buffer.copy_(tensor)


def captured(work: Work) -> Work:
    """Run `work` a few times on a stream of its own, then record it there as a CUDA graph. Raises what CUDA refuses."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # around the capture too: one that fails leaves its stream current
        for _ in range(WARM_UPS):
            work()
        try:
            with torch.cuda.graph(graph, stream=stream):
                work()
        except Exception:  # .. and the random generator recording, which a copy of its state does not
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(generator.clone_state())
            raise
    torch.cuda.current_stream().wait_stream(stream)
    return graph.replay


def tensors_of(state: Any) -> list[Tensor]:
    """The tensors of a carried state, in order. Raises TypeError for anything else in it."""
    if state is None:
        return []
    if isinstance(state, Tensor):
        return [state]
    if not isinstance(state, tuple):
        raise TypeError(f"the carried state holds a {type(state).__name__}; a graph carries tensors only")
    return [tensor for part in state for tensor in tensors_of(part)]


def _cloned(state: Any) -> Any:
    if isinstance(state, tuple):
        return tuple(map(_cloned, state))
    return None if state is None else state.clone()


@contextmanager
def _unchanged(model: nn.Module, optimizer: Optimizer) -> Iterator[None]:
    """Afterwards weights, buffers, the optimiser's state and random generators are what they were, in the same memory;
    state that the optimiser did not have is zero, which is what it starts from.
    """
    device = next(model.parameters()).device
    weights = [tensor.detach() for tensor in itertools.chain(model.parameters(), model.buffers())]
    before = [(tensor, tensor.clone()) for tensor in [*weights, *_state_of(optimizer)]]
    known = {id(tensor) for tensor, _ in before}
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        for tensor, value in before:
            tensor.copy_(value)
        for tensor in _state_of(optimizer):
            if id(tensor) not in known:
                tensor.zero_()
        optimizer.zero_grad(set_to_none=True)


def _state_of(optimizer: Optimizer) -> list[Tensor]:
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's remark, once an optimiser, that one fit for capture runs uncaptured: so it does in warm-up."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This instance was constructed with capturable=True")
        yield


def _first(error: BaseException) -> BaseException:
    """What began it: leaving a capture that failed raises anew."""
    while error.__context__ is not None:
        error = error.__context__
    return error
