"""Measures the trial of a record on this machine: evaluates its weights again, or trains the trial again."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from harness.containment import first_line
from harness.errors import ExecutionError, HarnessError
from harness.execution import inline
from harness.execution.executors import Event, Execution, Resources
from harness.integrity import certifier
from harness.machine.limits import cpus_available
from harness.machine.processes import scratch_prefix
from harness.model import count_parameters
from harness.plan.specs import Contents
from harness.plan.suite_file import DynamicSpec, MeasureSpec, TimeoutSpec
from harness.records import sidecars
from harness.records.contents import files_named
from harness.records.record import TrialRecord
from harness.records.sidecars import TokenScores
from harness.training.checkpoint import BEST, load_weights, weights_sha256
from harness.training.clocks import Clock
from harness.training.evaluation import evaluate, references
from harness.trial import stages
from harness.trial.sessions import History
from harness.trial.setup import conditions, fetch_sources, load_planned, trained_model, with_exact_route
from harness.trial.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationOptions:
    """How records are verified.

    Args:
        device: 'cpu', 'cuda', or 'auto': a GPU, if there is one, for a trial that was trained on one; else the CPU.
        named_files: allow files that a record names by their path to be opened: texts and weights of a user.
        minutes: after which a second training is ended; the learning curves are compared as far as it came.
        look: called after a second training that ended well, with its task and the file of its best weights.
    """

    data: Path
    device: str = "auto"
    named_files: bool = False
    minutes: float | None = None
    look: Callable[[Task, Path], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured on this machine.

    Args:
        record: the record with its status, metrics, weights, environment and certificate as they are here.
        trained: whether the trial was trained again; if not, its weights were read and evaluated.
    """

    record: TrialRecord
    scores: TokenScores | None
    trained: bool


def evaluate_again(
    record: TrialRecord, contents: Contents | None, best: Path, options: VerificationOptions
) -> Measured:
    """Evaluate the weights in `best`.

    Args:
        contents: what the trial read; None when it is not known.
    Raises: ExecutionError when the trial cannot be evaluated on this machine; Damaged or CorpusError when the weights
        or the corpus cannot be read.
    """
    task = with_exact_route(_task(record, contents, options, Path()))
    spec, device = task.spec, torch.device(task.device)
    evaluation, weights = spec.train.evaluation, load_weights(best, "cpu")
    with _explained("evaluated"), conditions(task):
        fetch_sources([spec], task.data)
        corpus = load_planned(spec, task.data, task.contents)
        model, on_device = trained_model(spec, corpus, weights).to(device), corpus.to(device)
        built = stages.Built(model=model, corpus=corpus, on_device=on_device)
        valid, read = evaluate(model, on_device, "valid", evaluation, clock=Clock(device))
        test, tokens = evaluate(model, on_device, "test", evaluation, clock=Clock(device))
        metrics, counted = stages.scores_of_test(built, evaluation, test, tokens, beat=lambda: None)
        nll = {name: each.counted_N for name, each in {"valid": read, **counted}.items()}
        drawn = {} if record.certificate is None else record.certificate.drawn
        certificate = certifier.certificate(task, best, nll, drawn)
        metrics |= {"valid_ppl": valid.ppl, **references(corpus, evaluation)}
        metrics |= dict(zip(("params_total", "params_head"), count_parameters(model), strict=True))
    found = {
        "status": "ok" if certificate.fault is None else "invalid",
        "message": certificate.fault or "",
        "metrics": metrics,
        "weights_sha256": weights_sha256(weights),
        "environment": History(task).environment(graphed=False),
        "certificate": certificate,
    }
    return Measured(record=record.model_copy(update=found), scores=stages.scores_of(tokens, corpus), trained=False)


def train_again(
    record: TrialRecord, contents: Contents | None, options: VerificationOptions, on_event: Callable[[Event], None]
) -> Measured:
    """Train the trial of a record in a temporary folder. Nothing is written elsewhere.

    Raises: ExecutionError when the trial cannot be trained on this machine; CorpusError when its corpus cannot be read.
    """
    if (workers := record.spec.train.data_parallel) > 1:
        raise ExecutionError(
            f"it was trained by {workers} workers, and is verified in one process: leave --retrain out"
        )
    ends: list[Event] = []

    def listen(event: Event) -> None:
        on_event(event)
        if event.kind == "finished":
            ends.append(event)

    prefix = f"{scratch_prefix()}{os.getpid()}-"  # if this process is killed, the next run removes it
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        task = _task(record, contents, options, Path(folder).resolve() / "runs")
        task = replace(task, timeout=TimeoutSpec(minutes=options.minutes))
        resources = Resources(cpus=task.threads, gpus=0 if task.device == "cpu" else None)
        with _explained("trained"):
            inline.execute(Execution(tasks=[task], resources=resources), listen)
        if (found := ends[-1].record) is None:
            raise ExecutionError(ends[-1].message)
        if options.look is not None and found.status == "ok":
            options.look(task, task.folder / BEST)
        return Measured(record=found, scores=sidecars.TOKEN_NLL.load(task.runs, found), trained=True)


def _task(record: TrialRecord, contents: Contents | None, options: VerificationOptions, runs: Path) -> Task:
    """The trial, in the folder `runs`, as far as this machine allows: with its number of threads and its route of
    matrix products. Raises ExecutionError for a trial that reads files which its record names by their path.
    """
    spec, environment = record.spec, record.environment
    named = files_named(spec)
    if named and not options.named_files:
        raise ExecutionError(f"it reads files that its record names ({', '.join(named)}); --named-files allows this")
    device = options.device
    if device == "auto":
        device = "cuda" if environment.matmul_route is None and torch.cuda.is_available() else "cpu"
    return Task(
        spec=spec,
        suite=record.suite,
        runs=runs,
        data=options.data.resolve(),
        device=device,
        executor="inline",
        threads=min(max(environment.threads, 1), cpus_available()),
        route=environment.matmul_route or "default",
        measure=MeasureSpec(start="start_valid_ppl" in record.metrics, dynamic=DynamicSpec.of_metrics(record.metrics)),
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
        raise ExecutionError(f"it cannot be {what} here ({first_line(error)})") from error
