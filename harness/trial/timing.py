"""The one clock for what is timed beside training: the dry run, planned models, finished trials, and
inference in a trial.

Models take turns, in rounds: each is built again, warms up, and is timed for some batches of each kind,
by the code that trials evaluate and train with. Medians and quartiles are over the batches of all
rounds, so that a machine that becomes slower affects all models equally. No file is written or changed.
"""

import gc
import math
import statistics
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle, islice

import torch

from harness.containment import contained, first_line
from harness.corpora.batching import Segment, training_segments
from harness.corpora.corpus import Corpus
from harness.errors import Damaged, ExecutionError, HarnessError
from harness.machine import environment
from harness.model import LanguageModel, components
from harness.plan.specs import EvalSpec, TrialSpec
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing
from harness.training.checkpoint import BEST, load_weights, weights_sha256
from harness.training.clocks import WARMUP_BATCHES, Clock, quartiles
from harness.training.evaluation import evaluate, scored_segments
from harness.training.optimizers import make_optimizer
from harness.training.step import Diverged, EagerStep, graphed, ordered, segments_of, steps_of, train_epoch
from harness.trial.setup import built_model, conditions, fetch_sources, load_planned, with_exact_route, with_states
from harness.trial.task import Task

ROUNDS = 3
SECONDS = 0.2  # of timed batches of one kind, in each round and of each model
MIN_BATCHES = 2  # timed after a warm-up, at least
WARMUP_SECONDS = 1.0  # after which the warm-up of slow batches ends: what only first batches do takes less than that
INFERENCE_BATCHES = 20  # timed in a trial
BUSY_CORES = 0.5  # of other work on the machine, from which times do not count as exclusive

Laps = Callable[[int], list[float]]  # so many batches -> milliseconds of each
Visit = Callable[[Task, LanguageModel, Corpus], None]
Failed = Callable[[list[Task], str], None]  # of the tasks that cannot go on, and why


def in_turns(tasks: list[Task], visit: Visit, failed: Failed, *, rounds: int = ROUNDS) -> None:
    """Give each model its turns: the models of a corpus one after the other, in rounds. In its turn a model is built on
    its device, with its initial weights, and visited under the conditions of its trial. Then its memory is freed.

    Args:
        visit: gets the task, the model, and the corpus on the device.
        failed: called with a task whose turn failed, or with all tasks of a corpus that cannot be read. What fails has
            no further turn.
    """
    for name in dict.fromkeys(str(task.spec.corpus) for task in tasks):
        left = [with_exact_route(task) for task in tasks if str(task.spec.corpus) == name]
        try:
            fetch_sources([task.spec for task in left], left[0].data)
            corpus = load_planned(left[0].spec, left[0].data, left[0].contents).to(torch.device(left[0].device))
        except Exception as error:
            failed(left, _reason(error))
            continue
        for _ in range(rounds):
            for task in list(left):
                fault = _turn(task, corpus, visit)
                gc.collect()  # a model and its optimizer may refer to each other
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                if fault:
                    left.remove(task)
                    failed([task], fault)


def _turn(task: Task, corpus: Corpus, visit: Visit) -> str:
    try:
        with conditions(task), contained(components(task.spec)):
            device = torch.device(task.device)
            visit(task, built_model(task.spec, corpus, device), with_states(task.spec, corpus))
    except Exception as error:  # of this model, of any kind; the others have their turns
        return _reason(error)  # an error kept would keep the model
    return ""


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, HarnessError | Diverged) else first_line(error)


def milliseconds(task: Task, model: LanguageModel, corpus: Corpus, *, lr: float) -> dict[str, list[float]]:
    """Time some batches of each kind; of training last, since its steps change the weights."""
    train, found = task.spec.train, {}
    found["eval"] = warm(evaluation(model, corpus, train.evaluation))
    if (batch := task.measure.inference_batch) is not None:
        segments = inference_segments(corpus, train.evaluation, batch=batch, device=next(model.parameters()).device)
        if segments:
            found["inference"] = warm(lambda number: inference_laps(model, segments, number))
    if train.epochs:
        found["train"] = warm(training(model, corpus, task.spec, lr=lr))
    return found


def _all_rounds(
    tasks: list[Task], prepare: Callable[[Task, LanguageModel, Corpus], float], say: Callable[[str], None]
) -> dict[str, dict[str, list[float]]]:
    """The milliseconds of each model's batches by trial id and kind, without the models that failed.

    Args:
        prepare: called in each turn before the model is timed; returns the learning rate.
        say: called with a sentence for each model that failed.
    """
    taken: dict[str, dict[str, list[float]]] = {task.id: {} for task in tasks}

    def visit(task: Task, model: LanguageModel, corpus: Corpus) -> None:
        lr = prepare(task, model, corpus)
        for kind, batches in milliseconds(task, model, corpus, lr=lr).items():
            taken[task.id].setdefault(kind, []).extend(batches)

    def failed(without: list[Task], fault: str) -> None:
        for task in without:
            del taken[task.id]
            say(f"{task.spec} ({task.id}) could not be timed: {fault}")

    in_turns(tasks, visit, failed)
    return taken


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
    if not segments:
        raise ExecutionError(
            f"train: batch_size {train.batch_size} and seq_len {train.seq_len} (batching: {train.batching}) make no "
            f"batch of a training split of {len(corpus.train)} tokens; make them smaller, or give a longer text"
        )
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTime:
    """How long a model takes, by the medians of its timed batches.

    Args:
        train_ms: of a training step; 0 for a model that is not trained.
        eval_ms: of a batch of evaluation.
        steps: of an epoch.
        valid_batches, test_batches: of an evaluation of these splits.
    """

    train_ms: float
    eval_ms: float
    steps: int
    valid_batches: int
    test_batches: int

    def minutes(self, epochs: float) -> float:
        """Of a whole trial: its steps, a validation after each epoch, and two tests (of the last and of the best
        weights). Starting a process and reading the corpus are not included.
        """
        last = math.ceil(epochs)
        steps = sum(steps_of(epoch, epochs, self.steps) for epoch in range(1, last + 1))
        evaluations = max(last, 1) * self.valid_batches + 2 * self.test_batches
        return (steps * self.train_ms + evaluations * self.eval_ms) / 60_000


def model_times(tasks: list[Task], warn: Callable[[str], None]) -> dict[str, ModelTime]:
    """Time some batches of each trial's model, with its initial weights. Returns trial id -> its time."""
    counts = {}

    def prepare(task: Task, model: LanguageModel, corpus: Corpus) -> float:
        train = task.spec.train
        counts[task.id] = {
            "steps": len(segments_of(corpus, train, corpus.train.device, seed=task.spec.seed)),
            "valid_batches": sum(1 for _ in scored_segments(corpus, "valid", train.evaluation)),
            "test_batches": sum(1 for _ in scored_segments(corpus, "test", train.evaluation)),
        }
        return train.lr

    times = {}
    for trial, found in _all_rounds(tasks, prepare, warn).items():
        train_ms = statistics.median(found["train"]) if "train" in found else 0.0
        times[trial] = ModelTime(train_ms=train_ms, eval_ms=statistics.median(found["eval"]), **counts[trial])
    return times


def exclusive_pass(tasks: list[Task], records: Mapping[str, TrialRecord]) -> tuple[list[Timing], list[str]]:
    """Time finished trials again with their own weights, all in one pass, while no other trial runs. No record is
    changed.

    Args:
        tasks: of the trials, as they had them; `shared`: other work is known to run on this machine.
    Returns: timings, and a sentence for each trial that could not be timed, or not with its own weights.
    """
    other_work, initial, sentences = environment.OtherWork(), set(), []

    def prepare(task: Task, model: LanguageModel, corpus: Corpus) -> float:
        record = records[task.id]
        if not _has_own_weights(model, task, record):
            initial.add(task.id)
        return record.curve[-1].lr if record.curve else record.spec.train.lr  # the last one that the trial had

    taken = _all_rounds(tasks, prepare, sentences.append)
    busy = round(other_work.cores(), 2)
    about = {
        "rounds": ROUNDS,
        "passed": uuid.uuid4().hex,
        "device": environment.device_name(torch.device(tasks[0].device)),
        "threads": tasks[0].threads,
        "torch": str(torch.__version__),
        "commit": environment.commit(),
        "taken": environment.now(),
        "busy": busy,
        "shared": tasks[0].shared or busy >= BUSY_CORES,
    }
    timings = []
    for trial, found in taken.items():
        if trial in initial:
            sentences.append(
                f"{records[trial].spec} ({trial}) was timed with initial weights: its own are gone or damaged"
            )
        about |= {"trial": trial, "weights_sha256": records[trial].weights_sha256, "initial": trial in initial}
        metrics = {}
        for kind, batches in found.items():
            metrics |= quartiles(kind, batches)
        timings.append(Timing(**about, metrics=metrics, batches=len(found.get("train", ()))))
    return timings, sentences


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
