"""The tables of `harness plan`. What is the same in all rows is said once above a table, and not in a column."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from rich.filesize import decimal
from rich.text import Text

from harness.cli.factored import Shown, by_name, factored
from harness.execution.planned import LaterTrials, PlannedTrial, SuiteDisk
from harness.execution.timed import RowTime
from harness.plan.selection import choices, facts_of, key_texts
from harness.plan.specs import TrialSpec
from harness.plan.tuning import point_text
from harness.training.step_memory import StepMemory

MIB = 2**20
NO_BREAK = "\u00a0"  # a space at which textwrap breaks no line


def trials(planned: list[PlannedTrial], later: Iterable[LaterTrials] = (), title: str | None = None) -> Shown:
    """A row for each planned trial: what it is, its parameter counts, its state; and for trials without an id yet.

    Trials of a tuned suite have a column with their point.
    """
    names = ("trial", "corpus", "backbone", "head", "point", "seed", "params", "head params", "state")
    rows = []
    for trial in planned:
        spec = trial.spec
        counts = [f"{trial.params_total:,}", f"{trial.params_head:,}"]
        about = [spec.id, str(spec.corpus), str(spec.backbone), str(spec.head), point_text(trial.point) or "-"]
        rows.append([*about, str(spec.seed), *counts, trial.state])
    for each in later:
        name, state = ("no point", "tuning failed") if each.lost else ("after tuning", "missing")
        seeds = ", ".join(map(str, each.seeds))
        rows.append([name, each.corpus, each.backbone, each.head, "-", seeds, "-", "-", state])
    columns = by_name(names, rows)
    if set(columns["point"]) <= {"-"}:
        del columns["point"]
    yield from factored(columns, title, kept=("trial", "head", "seed"), right=("seed", "params", "head params"))


def step_memory(planned: list[PlannedTrial], device: str) -> Shown:
    """A row for each model: MiB at the peak of a training step, by part; '-' where they could not be computed. Then
    what comes on top.
    """
    parts = list(next((_parts(trial.memory) for trial in planned if trial.memory), {}))
    rows = {}
    for trial in planned:
        sizes = _parts(trial.memory) if trial.memory else {}
        about = str(trial.spec.corpus), str(trial.spec.backbone), str(trial.spec.head)
        rows[about] = [*about, *(f"{sizes[part] / MIB:,.1f}" if sizes else "-" for part in parts)]
    sizes = [f"in {part}" if part in ("backbone", "head") else part for part in parts]
    columns = by_name(("corpus", "backbone", "head", *sizes), rows.values())
    title = f"memory of a training step at its peak, MiB, {device}"
    yield from factored(columns, title, kept=("head", *sizes), right=sizes)
    yield from map(Text, on_top(device))


def on_top(device: str) -> list[str]:
    """What a trial needs beside the memory of its step. The numbers were measured on Linux with torch 2.13 for CPUs."""
    where = "in main memory" if device.startswith("cuda") else "on top"
    found = [
        f"{where}: about 400 MiB for the process of each trial (Python, torch, Ray), more with a CUDA build of torch; "
        "under Ray once some 750 MiB for the command itself and Ray's own processes"
    ]
    if device.startswith("cuda"):
        return [*found, "on the GPU: some hundred MiB for the CUDA context of each trial that runs at the same time"]
    kept = "glibc's malloc keeps freed blocks, about another quarter of the step, unless MALLOC_MMAP_THRESHOLD_=65536"
    return [*found, f"{kept} is set"]


def times(rows: list[RowTime], baseline: str | None, device: str, *, matched: bool) -> Shown:
    """A row for each row of the suite: milliseconds of a training step and of a batch of evaluation, minutes of a trial
    of the table. With a baseline also the time of a step against its step, and the epochs that fit into its time.

    Args:
        matched: the rows have these epochs already, by `match.time`.
    """
    against = [] if baseline is None else [f"step / {baseline}'s", f"epochs in {baseline}'s time"]
    numbers = ("ms/step", "ms/eval batch", "minutes a trial", *against)
    lines = []
    for row in rows:
        cells = ["-"] * len(numbers)
        if row.time is not None:
            milliseconds = (f"{row.time.train_ms:.1f}", f"{row.time.eval_ms:.1f}")
            cells[:3] = [*milliseconds, f"{row.time.minutes(row.epochs):.1f}"]
        if row.ratio:
            cells[3:] = [f"{row.ratio:.2f}", f"{row.epochs if matched else row.epochs / row.ratio:.2f}"]
        lines.append([row.corpus, row.backbone, row.head, *cells])
    columns = by_name(("corpus", "backbone", "head", *numbers), lines)
    title = f"time on this machine, one trial at a time, {device}"
    yield from factored(columns, title, kept=("head", *numbers), right=numbers)


def disk(needed: SuiteDisk, folder: str) -> Iterator[str]:
    """What the trials without a record will need in the folder of their suite; nothing if all have one."""
    if not needed.trials:
        return
    losses = f", without the token losses on {', '.join(needed.without_losses)}" if needed.without_losses else ""
    then, at_most, free = map(decimal, (needed.finished, needed.running, needed.free))
    yield f"disk: {then} in {folder} for the finished trials{losses}; up to {at_most} for one that runs; free: {free}"


def conditions(specs: Iterable[TrialSpec], width: int | None) -> Iterator[str]:
    """The keys that --only takes, with their values.

    Args:
        width: characters of the terminal, at which lines are broken between two values; None: lines are not broken.
    """
    yield "--only takes KEY=VALUE with these keys, and id:"
    for text in key_texts(choices(facts_of(specs))):
        yield from [f"  {text}"] if width is None else _wrapped(text, width)


def _wrapped(text: str, width: int) -> Iterator[str]:
    """The lines of a list 'a: 1, b: 2', indented, broken after a comma and never after a colon."""
    whole = text.replace(": ", f":{NO_BREAK}")
    for line in textwrap.wrap(whole, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False):
        yield line.replace(NO_BREAK, " ")


def _parts(memory: StepMemory) -> dict[str, int]:
    return {**asdict(memory), "total": memory.total}
