"""One clock for what is timed beside training: batches of finished trials, of planned ones, and inference in a trial.

Models take turns, in rounds (`turns`): each is built again, warms up, and is timed for some batches of each kind, by
the code that trials evaluate and train with. Medians and quartiles are over the batches of all rounds, so that a
machine that becomes slower affects all models equally. No file is written or changed.
"""

import gc
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice

import torch

from harness.containment import contained, first_line
from harness.corpora.batching import Segment, training_segments
from harness.corpora.corpus import Corpus
from harness.errors import Damaged, HarnessError
from harness.machine import environment
from harness.model import LanguageModel, components
from harness.plan.specs import EvalSpec, TrialSpec
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing
from harness.training.checkpoint import BEST, load_weights, weights_sha256
from harness.training.clocks import WARMUP_BATCHES, Clock, quartiles
from harness.training.cuda_graph import graphed
from harness.training.evaluation import evaluate
from harness.training.optimizers import make_optimizer
from harness.training.step import Diverged, EagerStep, ordered, segments_of, train_epoch
from harness.trial.frozen import with_states
from harness.trial.setup import built_model, conditions, fetch_sources, load_planned, with_exact_route
from harness.trial.task import Task

ROUNDS = 3
SECONDS = 0.2  # of timed batches of one kind, in each round and of each model
MIN_BATCHES = 2  # timed after a warm-up, at least
WARMUP_SECONDS = 1.0  # after which the warm-up of slow batches ends: what only first batches do takes less than that
INFERENCE_BATCHES = 20  # timed in a trial
BUSY_CORES = 0.5  # of other work on the machine, from which times do not count as exclusive
LOOKS = 3  # measurements of the other work, a second each: earlier processes may still be ending

Laps = Callable[[int], list[float]]  # so many batches -> milliseconds of each
Visit = Callable[[Task, LanguageModel, Corpus], None]


def turns(tasks: list[Task], visit: Visit, *, rounds: int = ROUNDS) -> Iterator[tuple[list[Task], str]]:
    """Give each model its turns: the models of a corpus one after the other, in rounds. In its turn a model is built on
    its device, with its initial weights, and visited under the conditions of its trial. Then its memory is freed.

    Args:
        visit: gets the task, the model, and the corpus on the device.
    Yields: the task of each turn that has ended, or all tasks of a corpus that cannot be read; and why it failed, ''
        where it did not. What fails has no further turn.
    """
    for name in dict.fromkeys(str(task.spec.corpus) for task in tasks):
        left = [with_exact_route(task) for task in tasks if str(task.spec.corpus) == name]
        try:
            fetch_sources([task.spec for task in left], left[0].data)
            corpus = load_planned(left[0].spec, left[0].data, left[0].contents).to(torch.device(left[0].device))
        except Exception as error:
            yield left, _reason(error)
            continue
        for _ in range(rounds):
            for task in list(left):
                if fault := _turn(task, corpus, visit):
                    left.remove(task)
                _give_back()
                yield [task], fault


def _turn(task: Task, corpus: Corpus, visit: Visit) -> str:
    try:
        with conditions(task), contained(components(task.spec)):  # guard: timing-changes-nothing
            device = torch.device(task.device)
            visit(task, built_model(task.spec, corpus, device), with_states(task.spec, corpus))
    # guard: timing-of-one-model-fails
    except Exception as error:  # of this model, of any kind; the others have their turns
        return _reason(error)  # an error kept would keep the model
    return ""


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, HarnessError | Diverged) else first_line(error)


def _give_back() -> None:
    gc.collect()  # a model and its optimizer may refer to each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@dataclass(slots=True)
class Taken:
    """The milliseconds of one model's batches so far, by kind."""

    eval: list[float] = field(default_factory=list)
    inference: list[float] = field(default_factory=list)
    train: list[float] = field(default_factory=list)

    def visit(self, task: Task, model: LanguageModel, corpus: Corpus, *, lr: float) -> None:
        """Time some batches of each kind; of training last, since its steps change the weights."""
        train = task.spec.train
        self.eval += warm(evaluation(model, corpus, train.evaluation))
        if (batch := task.measure.inference_batch) is not None:
            segments = inference_segments(corpus, train.evaluation, batch=batch, device=next(model.parameters()).device)
            if segments:
                self.inference += warm(lambda number: inference_laps(model, segments, number))
        if train.epochs:
            self.train += warm(training(model, corpus, task.spec, lr=lr))

    def metrics(self) -> dict[str, float]:
        """Medians and interquartile ranges."""
        return quartiles("eval", self.eval) | quartiles("inference", self.inference) | quartiles("train", self.train)


def warm(laps: Laps) -> list[float]:
    """Milliseconds of batches after warm-up: as many as fit into SECONDS, and at least MIN_BATCHES."""
    began = time.perf_counter()
    for _ in range(WARMUP_BATCHES):
        (latest,) = laps(1)
        if time.perf_counter() - began > WARMUP_SECONDS:
            break
    return laps(max(MIN_BATCHES, round(1e3 * SECONDS / latest)))


def evaluation(model: LanguageModel, corpus: Corpus, spec: EvalSpec) -> Laps:
    """Batches of the test split, from its start; repeated where there are fewer than are asked for."""

    def laps(number: int) -> list[float]:
        clock = Clock(next(model.parameters()).device)
        while (left := number - len(clock.milliseconds)) > 0:
            part = spec.model_copy(update={"eval_batches": min(left, spec.eval_batches or left)})
            evaluate(model, corpus, "test", part, clock=clock)
        return clock.milliseconds

    return laps


def training(model: LanguageModel, corpus: Corpus, spec: TrialSpec, *, lr: float) -> Laps:
    """Steps of the first epoch and the next ones, at a constant learning rate. Each call continues after the last."""
    device, train = next(model.parameters()).device, spec.train.model_copy(update={"lr": lr})
    segments = segments_of(corpus, train, device, seed=spec.seed)
    eager = EagerStep(model, make_optimizer(model, train), train)
    step = graphed(eager, segments[0], log=lambda reason: None)
    done = 0

    def laps(number: int) -> list[float]:
        nonlocal done
        clock = Clock(device)
        while number:
            epoch, first = divmod(done, len(segments))
            steps = min(first + number, len(segments))
            own = ordered(segments, train, seed=spec.seed, epoch=epoch + 1)
            train_epoch(step, own, clock, epoch=epoch + 1, seed=spec.seed, first=first, steps=steps)
            done, number = done + steps - first, number - (steps - first)
        return clock.milliseconds

    return laps


def inference_times(
    model: LanguageModel, corpus: Corpus, spec: EvalSpec, *, batch: int, beat: Callable[[], None]
) -> dict[str, float]:
    """Milliseconds of model and mean nll of `batch` segments without gradients, carried state or dropout: the metrics,
    median and interquartile range of INFERENCE_BATCHES after WARMUP_BATCHES, the device synchronised around each.

    The batches are the first full ones of the test split, repeated if there are fewer. {} if there is no full one.

    Source: the time column of Chang and McCallum's multi-facet poster, table 1 (batch of 4).
    Differs: their clock is read without synchronisation; here it is read when the device has ended the batch.
    """
    full = inference_segments(corpus, spec, batch=batch, device=next(model.parameters()).device)
    if not full:
        return {}
    milliseconds = inference_laps(model, full, WARMUP_BATCHES + INFERENCE_BATCHES, beat=beat)
    return {"inference_batch": batch, **quartiles("inference", milliseconds[WARMUP_BATCHES:])}


def inference_segments(corpus: Corpus, spec: EvalSpec, *, batch: int, device: torch.device) -> list[Segment]:
    """The first full batches of the test split: as many as are timed, or fewer where there are not so many."""
    segments = training_segments(
        corpus.test,
        batch_size=batch,
        seq_len=spec.seq_len,
        batching=spec.batching,
        device=device,
        states=corpus.states.get("test"),
    )[: WARMUP_BATCHES + INFERENCE_BATCHES]
    width = spec.seq_len - (spec.batching == "blocks")
    return [segment for segment in segments if segment.inputs.shape[1] == width]


@torch.no_grad()
def inference_laps(
    model: LanguageModel, segments: list[Segment], number: int, *, beat: Callable[[], None] = lambda: None
) -> list[float]:
    """Milliseconds of so many batches; the segments are repeated."""
    device = next(model.parameters()).device
    model.eval()
    milliseconds = []
    for segment in islice(cycle(segments), number):
        _wait(device)
        began = time.perf_counter()
        distribution, _ = model(segment)
        distribution.mean_nll(segment.targets)
        _wait(device)
        milliseconds.append((time.perf_counter() - began) * 1e3)
        beat()
    return milliseconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def taken_in_turns(
    tasks: list[Task], prepare: Callable[[Task, LanguageModel, Corpus], float], failed: Callable[[Task, str], None]
) -> dict[str, Taken]:
    """Time the batches of each model. An error ends the timing of its own model only.

    Args:
        prepare: called in each turn before the model is timed; returns the learning rate.
        failed: called with a task that has no further turn, and the reason.
    Returns: what each trial's model took, by id, without those that failed.
    """
    taken = {task.id: Taken() for task in tasks}

    def visit(task: Task, model: LanguageModel, corpus: Corpus) -> None:
        taken[task.id].visit(task, model, corpus, lr=prepare(task, model, corpus))

    for ended, fault in turns(tasks, visit):
        for task in ended if fault else ():
            del taken[task.id]
            failed(task, fault)
    return taken


def timed(tasks: list[Task], records: Mapping[str, TrialRecord]) -> tuple[list[Timing], list[str]]:
    """An exclusive pass: finished trials are timed again with their own weights, all in one pass, while no other trial
    runs. No record is changed.

    Args:
        tasks: of the trials, as they had them; `shared`: other work is known to run on this machine.
    Returns: timings, and a sentence for each trial that could not be timed, or not with its own weights.
    """
    busy, initial = _busy(), set()

    def prepare(task: Task, model: LanguageModel, corpus: Corpus) -> float:
        record = records[task.id]
        if not _has_own_weights(model, task, record):
            initial.add(task.id)
        return record.curve[-1].lr if record.curve else record.spec.train.lr  # the last one that the trial had

    sentences: list[str] = []

    def failed(task: Task, fault: str) -> None:
        sentences.append(f"{task.spec} ({task.id}) could not be timed: {fault}")

    taken = taken_in_turns(tasks, prepare, failed)
    sentences += [
        f"{records[trial].spec} ({trial}) was timed with initial weights: its own are gone or damaged"
        for trial in taken
        if trial in initial
    ]
    about = {
        "rounds": ROUNDS,
        "passed": uuid.uuid4().hex,
        "device": environment.device_name(torch.device(tasks[0].device)),
        "threads": tasks[0].threads,
        "torch": str(torch.__version__),
        "commit": environment.commit(),
        "taken": environment.now(),
        "busy": busy,
        "shared": tasks[0].shared or busy >= BUSY_CORES,  # guard: other-work-noticed last
    }
    timings = [
        Timing(
            trial=trial,
            weights_sha256=records[trial].weights_sha256,
            metrics=found.metrics(),
            batches=len(found.train),
            initial=trial in initial,
            **about,
        )
        for trial, found in taken.items()
    ]
    return timings, sentences


def _busy() -> float:
    """Cores that are busy with other work, rounded as it is recorded."""
    for _ in range(LOOKS):
        if (busy := round(environment.busy_cores(), 2)) < BUSY_CORES:
            break
    return busy


def _has_own_weights(model: LanguageModel, task: Task, record: TrialRecord) -> bool:
    """Load the weights that the record names, if they exist and are undamaged; returns whether they are."""
    try:
        weights = load_weights(task.folder / BEST, "cpu")
    except Damaged:
        return False
    if weights_sha256(weights) != record.weights_sha256:
        return False
    model.load_state_dict(weights)
    return True
