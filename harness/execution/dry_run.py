"""Try every row of a suite with one batch, before hours of training (`harness run --dry-run`). Nothing is written to
the results folder.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from harness.corpora.corpus import Corpus
from harness.errors import ExecutionError
from harness.execution.live import Reporter
from harness.execution.options import RunOptions
from harness.execution.timed import task_alone
from harness.machine.environment import resolve_device
from harness.model import LanguageModel
from harness.plan.loaded_suite import Suite, possible_trials
from harness.plan.selection import select
from harness.plan.specs import TrainSpec, TrialSpec
from harness.plan.tuning import point_text
from harness.printable import counted
from harness.training.clocks import Clock, peak_memory_mib, reset_peak_memory
from harness.training.cuda_graph import graphed
from harness.training.evaluation import evaluate
from harness.training.optimizers import make_optimizer
from harness.training.schedules import make_schedule
from harness.training.step import Diverged, EagerStep, refuse_unfit, segments_of
from harness.trial.setup import count_text
from harness.trial.task import Task
from harness.trial.turns import turns

COUNTED_TOKENS = 200_000  # of the text, from its start, for an n-gram model
NOT_OF_A_STEP = {"lr", "epochs", "schedule"}  # settings of training in which rows may differ that are tried once


def dry_run(suite: Suite, *, data: Path, options: RunOptions, reporter: Reporter) -> bool:
    """Train one batch of every row of a suite, and evaluate one, in this process and one row after the other. Of a
    suite with `tune` every point is tried, but for points that differ in the learning rate only.

    Each row is one line: the loss before and after the step and the peak memory, or what is wrong, which is a problem
    of `reporter`. The memory of a row is given back before the next one is built.

    Args:
        data: folder of the corpora's files; those that are missing are downloaded.
        options: which trials, and on which device.
    Returns: whether every row could be trained.
    Raises: SuiteError for a wrong condition; ExecutionError when there is no such device.
    """
    on_cpu = suite.resources.gpus == 0 and options.device == "auto" and not options.gpus_per_trial
    device = torch.device("cpu") if on_cpu else resolve_device(options.device)
    threads = options.cpus_per_trial or suite.resources.cpus
    rows = rows_of(suite, options.only)
    wholes, found, failed = {spec.id: spec for spec in rows}, {}, 0

    def visit(task: Task, model: LanguageModel, corpus: Corpus) -> None:
        refuse_unfit(wholes[task.id].train, task.device)
        found[task.id] = _one_step(task.spec, model, corpus)

    tasks = [replace(task_alone(suite, _one_worker(spec), data, device), threads=threads) for spec in rows]
    for turn in turns(tasks, visit, rounds=1):
        first = wholes[turn.tasks[0].id]
        if not turn.fault:
            reporter.say(f"ok    {_label(suite, first)}: {found[first.id]}")
            continue
        failed += len(turn.tasks)
        several = f"{first.corpus}, {counted(len(turn.tasks), 'row')}"
        reporter.problem(f"FAIL  {_label(suite, first) if len(turn.tasks) == 1 else several}: {turn.fault}")
    reporter.say(
        f"dry run of {counted(len(rows), 'row')} on {device}: {len(rows) - failed} ok, {failed} failed; "
        "nothing was written to the results folder"
    )
    return not failed


def rows_of(suite: Suite, only: Iterable[str]) -> list[TrialSpec]:
    """The first trial of each row that conditions select: of each corpus, backbone, head and way of training."""
    found: dict[tuple[str, ...], TrialSpec] = {}
    for spec in select(possible_trials(suite), tuple(only)):
        train = spec.train.model_dump_json(exclude=NOT_OF_A_STEP)
        found.setdefault((str(spec.corpus), str(spec.backbone), str(spec.head), train), spec)
    return list(found.values())


def _one_worker(spec: TrialSpec) -> TrialSpec:
    """A trial as one of its workers has it."""
    train = spec.train
    rows = train.batch_size // train.data_parallel
    return spec.model_copy(update={"train": train.model_copy(update={"data_parallel": 1, "batch_size": rows})})


def _one_step(spec: TrialSpec, model: LanguageModel, corpus: Corpus) -> str:
    """Evaluate a batch, train one step, and evaluate the batch again. Returns the losses, in nats a token, and the peak
    of the memory meanwhile. Raises Diverged when a loss is not finite; what the trial would raise.
    """
    train, device = spec.train, next(model.parameters()).device
    count_text(model, corpus, COUNTED_TOKENS)
    reset_peak_memory(device)
    before = _loss(model, corpus, train, "before the first step")
    if not train.epochs:
        return f"loss {before:.3f}, not trained"
    segments = segments_of(corpus, train, device, seed=spec.seed)
    if not segments:
        raise ExecutionError(
            f"train: batch_size {train.batch_size} and seq_len {train.seq_len} (batching: {train.batching}) make no "
            f"batch of a training split of {len(corpus.train)} tokens"
        )
    optimizer, segment = make_optimizer(model, train), segments[0]
    step = graphed(EagerStep(model, optimizer, train), segment, log=lambda reason: None)
    step.begin_epoch()
    make_schedule(optimizer, train, segments=len(segments)).before_step(0)
    step(segment)
    loss = step.loss_sum.item() / segment.targets.numel()
    if not math.isfinite(loss):
        raise Diverged(f"the training loss of the first batch is {loss}")
    after = _loss(model, corpus, train, "after one step")
    return f"loss {before:.3f} -> {after:.3f}, peak memory {peak_memory_mib(device):,.0f} MiB"


def _loss(model: LanguageModel, corpus: Corpus, train: TrainSpec, when: str) -> float:
    clock = Clock(next(model.parameters()).device)
    spec = train.evaluation.model_copy(update={"eval_batches": 1})
    score = evaluate(model, corpus.valid, spec, uncounted_id=corpus.uncounted_id, clock=clock)
    if not math.isfinite(score.mean_nll):
        raise Diverged(f"the validation loss {when} is {score.mean_nll}")
    return score.mean_nll


def _label(suite: Suite, spec: TrialSpec) -> str:
    """The row as its line names it; with the values of its point if the suite is tuned."""
    point = suite.tuning.points.get(spec.id, {}) if suite.tuning is not None else {}
    of_training = {key: value for key, value in point.items() if key.startswith("train.") and key != "train.lr"}
    tried = [point_text(of_training)] if of_training else []
    return ", ".join([str(spec.head), _shortest(suite, spec, "backbone"), _shortest(suite, spec, "corpus"), *tried])


def _shortest(suite: Suite, spec: TrialSpec, kind: Literal["backbone", "corpus"]) -> str:
    """Its name alone, where the suite has no other one of this name."""
    this = getattr(spec, kind)
    same = {str(each) for trial in possible_trials(suite) if (each := getattr(trial, kind)).name == this.name}
    return this.name if len(same) == 1 else str(this)
