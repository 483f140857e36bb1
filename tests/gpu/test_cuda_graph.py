"""The step as a graph: the same bits as the eager step, whatever is carried, clipped, scheduled, shuffled or ragged.

Without a GPU the graph is a `Tape`: torch's operations of one step, repeated on the very tensors they were recorded
with. What a CUDA graph would freeze, a number of Python's or a tensor made anew by every step, a tape freezes too.
"""

import contextlib
import gc
import inspect
import random
import weakref
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small import TOKENS
from small import spec as small_spec
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from harness.corpora.batching import Segment, Segments, training_segments
from harness.distributions import Logits
from harness.errors import ExecutionError
from harness.gpu.cuda_graph import GraphStep, captured, graphed, tensors_of
from harness.kernels import reference_only
from harness.kernels.choice import FormChoice, using
from harness.model import LanguageModel, build, build_backbone
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.protocols import Hidden, followers
from harness.training.clocks import Clock
from harness.training.optimizers import make_optimizer
from harness.training.schedules import make_schedule
from harness.training.step import EagerStep, ordered, train_epoch

spec = partial(small_spec, lr=0.3)

V, STEPS = 7, 4  # 83 tokens in 4 columns of 20: 19 targets in segments of 5 are 5 + 5 + 5 + 4
SEGMENTS = training_segments(TOKENS, batch_size=4, seq_len=5)
LSTM = ComponentSpec(name="lstm", params={"d_model": 6, "num_layers": 2, "dropout": 0.3})
TRANSFORMER = ComponentSpec(
    name="transformer_encoder", params={"d_model": 6, "num_layers": 1, "num_heads": 2, "d_ff": 5}
)
ON_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
HALVED = {"plateau": {"factor": 0.5}}


@pytest.fixture(autouse=True)
def _nothing_is_left_out():
    with using(FormChoice(log=lambda sentence: None)):
        yield


class Tape(TorchDispatchMode):
    """What was done within it can be done again, to the same tensors."""

    def __init__(self):
        super().__init__()
        self.calls, self.replays = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default, "a value is read within the step"
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def replay(self) -> None:
        self.replays += 1
        with torch._C._AutoDispatchBelowAutograd():  # where the operations were recorded
            for func, args, kwargs, out in self.calls:
                again = func(*args, **kwargs)
                for old, new in zip(tensors(out), tensors(again), strict=True):
                    if old.data_ptr() != new.data_ptr():  # neither a view nor written in place
                        old.copy_(new)


def tensors(out) -> list[torch.Tensor]:
    return [each for each in (out if isinstance(out, list | tuple) else [out]) if isinstance(each, torch.Tensor)]


def taped(tapes: list[Tape]):
    """A recorder that leaves its tape in a list."""

    def record(work):
        for _ in range(3):
            work()
        tapes.append(Tape())
        with tapes[-1]:
            work()
        return tapes[-1].replay

    return record


class Readout(nn.Linear):
    """A head of one matrix."""

    def forward(self, hidden):
        return Logits(super().forward(hidden.layers[-1]))


def eager_step(backbone: ComponentSpec, train: TrainSpec, device="cpu") -> EagerStep:
    torch.manual_seed(3)
    model = LanguageModel(build_backbone(backbone, V), Readout(6, V)).to(device)
    return EagerStep(model, make_optimizer(model, train), train)


def segments_on(device: str) -> Segments:
    cut = SEGMENTS.cut
    return replace(
        SEGMENTS, cut=lambda units: Segment(*(each.to(device) for each in (cut(units).inputs, cut(units).targets)))
    )


def trained(step, optimizer, train: TrainSpec, device="cpu", epochs=3) -> list[float]:
    """The mean losses of epochs, each after a validation no better than the one before."""
    schedule, losses = make_schedule(optimizer, train, segments=STEPS), []
    for number in range(1, epochs + 1):
        clock, segments = Clock(torch.device(device)), ordered(segments_on(device), train, seed=1, epoch=number)
        before_step = partial(lambda begun, done: schedule.before_step(begun + done), (number - 1) * STEPS)
        losses.append(train_epoch(step, segments, clock, epoch=number, seed=1, before_step=before_step))
        assert len(clock.milliseconds) == STEPS
        schedule.after_epoch(number, 1.0)
    return losses


def state_of(step: EagerStep) -> list[torch.Tensor]:
    """Weights and the optimiser's state."""
    return [*step.parameters, *(each for state in step.optimizer.state.values() for each in state.values())]


CASES = {
    # replays: of 3 full segments an epoch all but the first, which has no state yet
    "lstm": (LSTM, {}, 2),
    "lstm, clip and momentum": (LSTM, {"clip": 0.05, "momentum": 0.9, "weight_decay": 0.01}, 2),
    "lstm, step": (LSTM, {"schedule": {"step": {"after": 1, "factor": 0.5}}}, 2),
    "lstm, shuffled": (LSTM, {"shuffle": True, "optimizer": "adam", "lr": 0.01}, 3),
    "lstm, in parts": (LSTM, {"accumulation": 2, "clip": 0.05}, 2),
    "transformer, in parts": (TRANSFORMER, {"accumulation": 4}, 3),
    "transformer, adam": (TRANSFORMER, {"optimizer": "adam", "lr": 0.01, "schedule": HALVED}, 3),
    "lstm, cosine": (LSTM, {"schedule": {"warmup": {"steps": 5, "decay": "cosine"}}}, 2),
    "transformer, adamw of transformers": (
        TRANSFORMER,
        {
            **{"optimizer": "adamw_huggingface", "lr": 0.01, "weight_decay": 0.1},
            "schedule": {"warmup": {"steps": 3, "decay": "linear"}},
        },
        3,
    ),
}


MODELS = {
    "lstm": (LSTM, {"momentum": 0.9, "clip": 1.0}),
    "lstm, adam": (LSTM, {"optimizer": "adam", "lr": 0.01}),
    "transformer, adam": (TRANSFORMER, {"optimizer": "adam", "lr": 0.05}),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
@pytest.mark.parametrize(("backbone", "changes", "replays"), CASES.values(), ids=CASES)
def test_a_graph_trains_as_the_eager_step_without_a_gpu_to_the_same_bits(backbone, changes, replays, device):
    train, tapes = spec(**changes), []
    eager, recorded, untrained = (eager_step(backbone, train, device) for _ in range(3))
    graph = GraphStep(recorded, segments_on(device)[0], taped(tapes) if device == "cpu" else captured)
    found = trained(graph, recorded.optimizer, train, device)
    expected = trained(eager, eager.optimizer, train, device)
    assert not any(map(torch.equal, eager.parameters, untrained.parameters))
    if device == "cpu":
        assert found == expected
        assert tapes[0].replays == 3 * replays
        assert all(map(torch.equal, state_of(recorded), state_of(eager)))
    else:
        assert found == pytest.approx(expected, rel=1e-6)
        for ours, theirs in zip(recorded.parameters, eager.parameters, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
@pytest.mark.parametrize(
    "head", [{"name": "untying", "params": {"share": 0.5}}, {"name": "byte_loss", "params": {"fade": (0.25, 0.75)}}]
)
def test_a_graph_that_was_recorded_at_the_start_follows_training(head, device):
    def made() -> EagerStep:
        train = spec(optimizer="adamw", lr=0.01, weight_decay=0.1)
        texts = tuple(b"words"[:number] for number in range(V))
        model = build(TRANSFORMER, ComponentSpec(**head), vocab_size=V, seed=1, token_bytes=texts).to(device)
        return EagerStep(model, make_optimizer(model, train), train)

    eager, recorded, segment = made(), made(), segments_on(device)[0]
    with reference_only() if device == "cpu" else contextlib.nullcontext():  # on a CPU the lean form reads a number
        graph = GraphStep(recorded, segment, taped([]) if device == "cpu" else captured)
        for number in range(16):
            for module in (*followers(eager.model.head), *followers(recorded.model.head)):
                module.progress.fill_(number // 2 / 8)
            step = graph if number % 2 else eager
            step.begin_epoch()
            torch.manual_seed(number // 2)  # of dropout
            step(segment)
    if device == "cpu":
        assert all(map(torch.equal, held(recorded), held(eager)))
    else:
        for ours, theirs in zip(held(recorded), held(eager), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def held(step: EagerStep) -> list[torch.Tensor]:
    """What a graph must leave as it was."""
    return [*step.model.buffers(), *state_of(step)]


def count_calls(module, given):
    module.running.add_(1)
    module.unsaved.add_(1)


@pytest.mark.parametrize(("name", "steps"), [("lstm", 2), ("lstm, adam", 2), ("transformer, adam", 0)])
def test_a_graph_leaves_everything_as_it_was_and_where_it_was(name, steps):
    backbone, changes = MODELS[name]
    step, replays = eager_step(backbone, spec(**changes)), []
    step.model.register_buffer("running", torch.ones(2))
    step.model.register_buffer("unsaved", torch.ones(2), persistent=False)
    step.model.register_forward_pre_hook(count_calls)
    for segment in SEGMENTS[:steps]:
        step(segment)
    torch.manual_seed(11)
    drawn, before = generators(), held(step)
    values, places = [each.detach().clone() for each in before], [each.data_ptr() for each in before]
    made = graphed(step, SEGMENTS[0], log=pytest.fail, record=lambda work: lambda: (replays.append(1), work()))
    assert isinstance(made, GraphStep)
    assert len(replays) == (3 if backbone is LSTM else 4)  # the first step has no state to carry yet
    after = held(step)
    assert all(map(torch.equal, after, values))
    assert [each.data_ptr() for each in after][: len(places)] == places
    assert generators() == drawn
    assert not any(each.any() for each in after[len(values) :])  # an optimiser that has not stepped: none, or zeros
    assert all(each.grad is None for each in step.parameters)
    assert [float(group["lr"]) for group in step.optimizer.param_groups] == pytest.approx([spec(**changes).lr])


def failing(work):
    work()
    random.random()
    np.random.rand()
    raise RuntimeError("no graph\nof this step")


def generators() -> list:
    return [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]


def as_it_is(work):
    return work


def test_a_graph_that_cannot_be_had_is_an_error_where_it_is_demanded_and_changes_nothing():
    step, logged = eager_step(LSTM, spec(optimizer="adam")), []
    values, before = [each.detach().clone() for each in step.parameters], generators()
    assert graphed(step, SEGMENTS[0], log=logged.append, record=failing) is step
    assert logged == ["training steps are eager: they cannot be captured as a CUDA graph (RuntimeError: no graph)"]
    assert all(map(torch.equal, step.parameters, values))
    assert generators() == before
    with pytest.raises(RuntimeError, match="no graph"):
        graphed(eager_step(LSTM, spec(cuda_graph="on")), SEGMENTS[0], log=pytest.fail, record=failing)


@pytest.mark.parametrize(
    ("mode", "record", "kind"),
    [
        ("on", as_it_is, GraphStep),
        ("off", as_it_is, EagerStep),
        ("auto", None, EagerStep),
    ],
)
def test_the_step_follows_the_setting_and_the_device(mode, record, kind):
    step = eager_step(TRANSFORMER, spec(cuda_graph=mode))
    assert type(graphed(step, SEGMENTS[0], log=pytest.fail, record=record)) is kind


# A graph counts only after it agreed with eager steps. A recording is the step's own work here, done again by each
# replay; around the replay a fault is planted, which knows what was so when the work was recorded.


@contextlib.contextmanager
def without_advancing_the_random_stream(step, recorded):
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)


@contextlib.contextmanager
def with_masks_of_its_recording(step, recorded):
    torch.rand(1)
    after = torch.get_rng_state()
    torch.set_rng_state(recorded.generator)
    yield
    torch.set_rng_state(after)


@contextlib.contextmanager
def of_stale_inputs(step, recorded, name="inputs"):
    getattr(step._segment, name).copy_(getattr(recorded, name))
    yield


of_stale_targets = partial(of_stale_inputs, name="targets")


@contextlib.contextmanager
def without_the_carried_state(step, recorded):
    for tensor in tensors_of(step._carried):
        tensor.zero_()
    yield


@contextlib.contextmanager
def at_the_rate_of_its_recording(step, recorded):
    (group,) = step._eager.optimizer.param_groups
    wanted = float(group["lr"])
    group["lr"].fill_(recorded.rate)
    yield
    group["lr"].fill_(wanted)


@contextlib.contextmanager
def without_an_update(step, recorded):
    before = [each.detach().clone() for each in step._eager.parameters]
    yield
    with torch.no_grad():
        for each, value in zip(step._eager.parameters, before, strict=True):
            each.copy_(value)


def with_fault(fault, work):
    """A recording whose replays have the fault."""
    step = inspect.getclosurevars(work).nonlocals["self"]
    recorded = SimpleNamespace(
        generator=torch.get_rng_state(),
        inputs=step._segment.inputs.clone(),
        targets=step._segment.targets.clone(),
        rate=float(step._eager.optimizer.param_groups[0]["lr"]),
    )

    def replay():
        with fault(step, recorded):
            work()

    return replay


def that_does_nothing(work):
    return lambda: None


FAULTS = [
    without_advancing_the_random_stream,
    with_masks_of_its_recording,
    of_stale_inputs,
    of_stale_targets,
    without_the_carried_state,
    at_the_rate_of_its_recording,
    without_an_update,
    None,
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["lstm", "transformer, adam"])
def test_a_graph_that_is_not_what_eager_steps_are_is_refused(name, fault):
    backbone, changes = MODELS[name]
    step, logged = eager_step(backbone, spec(**changes)), []
    record = that_does_nothing if fault is None else partial(with_fault, fault)
    made = graphed(step, SEGMENTS[0], log=logged.append, record=record)
    if backbone is TRANSFORMER and fault is without_the_carried_state:  # it carries none
        assert isinstance(made, GraphStep)
        return
    assert made is step
    assert logged[0].startswith("training steps are eager: after ")
    what = "the random stream" if fault is without_advancing_the_random_stream else ""
    assert f"{what} of a CUDA graph is not that of eager steps" in logged[0]


def test_a_graph_that_was_left_out_is_not_recorded_and_one_that_is_demanded_is_an_error():
    told = []
    with using(FormChoice(left_out={"graph": "replays differ"}, log=pytest.fail)):
        step = eager_step(LSTM, spec())
        assert graphed(step, SEGMENTS[0], log=told.append, record=pytest.fail) is step
        with pytest.raises(ExecutionError, match="cuda_graph is on, but replays differ; set"):
            graphed(eager_step(LSTM, spec(cuda_graph="on")), SEGMENTS[0], log=pytest.fail, record=pytest.fail)
    assert told == ["training steps are eager: replays differ"]


class Odd(nn.Module):
    """A backbone with a state of the kind that `carry` makes of the last one."""

    def __init__(self, carry):
        super().__init__()
        self.embedding, self.carry = nn.Embedding(V, 6), carry

    def forward(self, tokens, state=None):
        return Hidden((self.embedding(tokens),), self.carry(state))


@pytest.mark.parametrize(
    ("carry", "message"),
    [
        (lambda state: (torch.zeros(2), 1), "the state of the backbone has a value of type int; a CUDA graph needs"),
        (lambda state: {"memory": torch.zeros(2)}, "a value of type dict"),
        (lambda state: torch.zeros(1 if state is None else 2), r"the carried state grows from \(1,\) to \(2,\)"),
    ],
)
def test_a_state_that_no_buffer_holds_is_no_graph(carry, message):
    model = LanguageModel(Odd(carry), Readout(6, V))
    step = EagerStep(model, make_optimizer(model, spec()), spec())
    with pytest.raises((TypeError, ValueError), match=message):
        GraphStep(step, SEGMENTS[0], taped([]))


class Recorded:
    """Stands for torch's streams, graphs and captures."""

    def __init__(self, *args, **settings):
        self.replays = 0

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return None

    def wait_stream(self, other):
        pass

    def replay(self):
        self.replays += 1


def test_a_recorded_graph_keeps_the_memory_that_it_was_recorded_with(monkeypatch):
    for name in ("Stream", "CUDAGraph", "graph", "stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, Recorded)

    def recorded():
        inputs = torch.zeros(3)
        return captured(lambda: inputs.add_(1)), weakref.ref(inputs)

    replay, inputs = recorded()
    gc.collect()
    assert inputs() is not None
    assert inputs()[0] == 4  # the warm-ups, and the recording
    replay()
    assert replay.graph.replays == 1
    del replay
    gc.collect()
    assert inputs() is None


@ON_A_GPU
def test_after_a_capture_that_fails_training_goes_on_eagerly_with_the_same_masks():
    train, losses = spec(), []
    for waits in (False, True):
        step = eager_step(LSTM, train, "cuda")
        if waits:  # for the device, which no capture allows
            hook = step.model.head.register_forward_hook(lambda module, given, result: torch.ones(1).cuda().item())
            assert graphed(step, segments_on("cuda")[0], log=lambda reason: None) is step
            hook.remove()
        losses += trained(step, step.optimizer, train, "cuda", epochs=1)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
