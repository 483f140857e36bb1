"""Try every row of a suite with one batch, before hours of training (`harness run --dry-run`). Nothing is written to
the results folder.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from harness.containment import first_line
from harness.corpora.corpus import Corpus
from harness.errors import HarnessError
from harness.execution.options import RunOptions
from harness.execution.progress.reporter import Reporter
from harness.execution.suite_times import task_alone
from harness.machine.environment import resolve_device
from harness.plan.loaded_suite import Suite, possible_trials
from harness.plan.selection import select
from harness.plan.specs import TrialSpec
from harness.plan.tuning import point_text
from harness.printable import counted
from harness.training.step import Diverged
from harness.trial.one_batch import give_back, one_batch
from harness.trial.setup import fetch_sources, load_planned, with_exact_route
from harness.trial.task import Task

NOT_OF_A_STEP = {"lr", "epochs", "schedule"}  # settings of training in which rows may differ that are tried once


def dry_run(suite: Suite, *, data: Path, options: RunOptions, reporter: Reporter) -> bool:
    """Train one batch of every row of a suite, and evaluate one, in this process and one row after the other. Of a
    suite with `tune` every point is tried, but for points that differ in the learning rate only.

    Each row is one line: the loss before and after the step, or what is wrong, which is a problem of `reporter`. The
    memory of a row is given back before the next one is built.

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
    failed = 0
    for corpus in dict.fromkeys(str(spec.corpus) for spec in rows):
        of_corpus = [spec for spec in rows if str(spec.corpus) == corpus]
        try:
            fetch_sources(of_corpus, data)
            loaded = load_planned(of_corpus[0], data.resolve(), suite.contents).to(device)
        except HarnessError as error:
            reporter.problem(f"FAIL  {corpus}, {counted(len(of_corpus), 'row')}: {error}")
            failed += len(of_corpus)
            continue
        for spec in of_corpus:
            task = with_exact_route(replace(task_alone(suite, spec, data, device), threads=threads))
            failed += not _tried(suite, task, loaded, reporter)
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


def _tried(suite: Suite, task: Task, corpus: Corpus, reporter: Reporter) -> bool:
    spec = task.spec
    try:
        found = one_batch(task, corpus)
    except Exception as error:  # of the row, of any kind; the others are tried
        reason = str(error) if isinstance(error, HarnessError | Diverged) else first_line(error)
        reporter.problem(f"FAIL  {_label(suite, spec)}: {reason}")
        return False
    finally:
        give_back()
    reporter.say(f"ok    {_label(suite, spec)}: {found}")
    return True


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
