"""Measures the trial of a record on this machine: evaluates its weights again, or trains the trial again."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from harness.errors import ExecutionError, HarnessError
from harness.execution import inline
from harness.execution.executors import Event, Execution, Resources
from harness.machine.environment import cpus_available
from harness.machine.processes import scratch_prefix
from harness.model import count_parameters
from harness.plan.suite_file import MeasureSpec
from harness.records import sidecars
from harness.records.contents import files_named
from harness.records.record import CurvePoint, Environment, Status
from harness.records.sidecars import TokenScores
from harness.training.checkpoint import load_weights, weights_sha256
from harness.training.clocks import Clock
from harness.training.evaluation import evaluate, references, score_from_the_right, text_scores
from harness.trial import certifier
from harness.trial.certify import FROM_THE_RIGHT
from harness.trial.sessions import History
from harness.trial.setup import conditions, fetch_sources, load_planned, trained_model, with_exact_route
from harness.trial.stages import scores_of
from harness.trial.task import Task
from harness.verification.stored import StoredRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationOptions:
    """How records are verified.

    Args:
        data: the folder of the corpora's files.
        device: 'cpu', 'cuda', or 'auto', which is the CPU for a trial that was trained on the CPU, and otherwise a GPU
            when this machine has one.
        named_files: allow files that a record names by their path to be opened: texts and weights of a user.
    """

    data: Path
    device: str = "auto"
    named_files: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured on this machine.

    Args:
        status: how the trial ended.
        metrics: names as in a record.
        weights: the digest of the weights.
        environment: this machine and its software.
        trained: whether the trial was trained again; if not, its weights were read and evaluated.
        message: why the status is not ok.
        curve: the learning curve; () after an evaluation.
        scores: what each test token costs.
    """

    status: Status
    metrics: dict[str, float]
    weights: str | None
    environment: Environment
    trained: bool
    message: str = ""
    curve: tuple[CurvePoint, ...] = ()
    scores: TokenScores | None = None


def evaluate_again(given: StoredRecord, options: VerificationOptions) -> Measured:
    """Evaluate the weights beside a record.

    Raises:
        ExecutionError: the trial cannot be evaluated on this machine.
        Damaged: the weights cannot be read.
        CorpusError: the corpus cannot be loaded.
    """
    task = with_exact_route(_task(given, options, Path()))
    spec, device = task.spec, torch.device(task.device)
    weights = load_weights(given.best, "cpu")
    with _explained("evaluated"), conditions(task):
        fetch_sources([spec], task.data)
        corpus = load_planned(spec, task.data, task.contents)
        model, on_device, clock = trained_model(spec, corpus, weights).to(device), corpus.to(device), Clock(device)
        evaluation, uncounted_id = spec.train.evaluation, corpus.uncounted_id
        valid, counted = evaluate(model, on_device.valid, evaluation, uncounted_id=uncounted_id, clock=clock)
        test, tokens = evaluate(model, on_device.test, evaluation, uncounted_id=uncounted_id, clock=clock)
        nll, more = {"valid": counted.counted_N, "test": tokens.counted_N}, {}
        if (right := score_from_the_right(model, on_device, evaluation, beat=lambda: None)) is not None:
            more, nll["test" + FROM_THE_RIGHT] = {"test_ppl_from_the_right": right[0].ppl}, right[1].counted_N
        drawn = {} if given.record.certificate is None else given.record.certificate.drawn
        fault = certifier.certificate(task, given.best, nll, drawn).fault
        total, head = count_parameters(model)
        metrics = {
            "valid_ppl": valid.ppl,
            "test_ppl": test.ppl,
            "test_ppl_standard": test.ppl_standard,
            **more,
            "scored_test_tokens": test.num_scored,
            "params_total": total,
            "params_head": head,
            **text_scores(test, corpus, evaluation),
            **references(corpus, evaluation),
        }
    return Measured(
        status="ok" if fault is None else "invalid",  # guard: verify-certifies always
        message=fault or "",
        metrics=metrics,
        weights=weights_sha256(weights),
        environment=History(task).environment(graphed=False),
        trained=False,
        scores=scores_of(tokens, corpus),
    )


def train_again(given: StoredRecord, options: VerificationOptions, on_event: Callable[[Event], None]) -> Measured:
    """Train the trial of a record in a temporary folder. Nothing is written elsewhere.

    Raises:
        ExecutionError: the trial cannot be trained on this machine.
        CorpusError: the corpus cannot be loaded.
    """
    spec = given.record.spec
    if spec.train.data_parallel > 1:
        raise ExecutionError(f"it was trained by {spec.train.data_parallel} workers, and is verified in one process")
    ends: list[Event] = []

    def listen(event: Event) -> None:
        on_event(event)
        if event.kind == "finished":
            ends.append(event)

    prefix = f"{scratch_prefix()}{os.getpid()}-"  # if this process is killed, the next run removes it
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        task = _task(given, options, Path(folder).resolve() / "runs")
        resources = Resources(cpus=task.threads, gpus=0 if task.device == "cpu" else None)
        with _explained("trained"):
            inline.execute(Execution(tasks=[task], resources=resources), listen)
        record = ends[-1].record
        if record is None:
            raise ExecutionError(ends[-1].message)
        scores = sidecars.TOKEN_NLL.load(task.runs, record)
    return Measured(
        status=record.status,
        metrics=record.metrics,
        weights=record.weights_sha256,
        environment=record.environment,
        trained=True,
        message=record.message,
        curve=record.curve,
        scores=scores,
    )


def _task(given: StoredRecord, options: VerificationOptions, runs: Path) -> Task:
    """The trial, in the folder `runs`, as far as this machine allows: with its number of threads and its route of
    matrix products. Raises ExecutionError for a trial that reads files which its record names by their path.
    """
    record, environment = given.record, given.record.environment
    named = files_named(record.spec)
    if named and not options.named_files:  # guard: verify-names-file
        raise ExecutionError(f"it reads files that its record names ({', '.join(named)}); --named-files allows this")
    device = options.device
    if device == "auto":
        device = "cuda" if environment.matmul_route is None and torch.cuda.is_available() else "cpu"
    contents = {}
    if given.contents is not None:
        contents = {str(record.spec.corpus): given.contents.corpus}
        if given.contents.backbone is not None:
            contents[str(record.spec.backbone)] = given.contents.backbone
    return Task(
        spec=record.spec,
        suite=record.suite,
        runs=runs,
        data=options.data.resolve(),
        device=device,
        executor="inline",
        threads=min(max(environment.threads, 1), cpus_available()),
        route=environment.matmul_route or "default",
        measure=MeasureSpec(start="start_valid_ppl" in record.metrics),
        contents=contents,
    )


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turns each exception of a component into an ExecutionError: the parameters in a record may have any value."""
    try:
        yield
    except (HarnessError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ExecutionError(f"it cannot be {what} here ({reason})") from error
