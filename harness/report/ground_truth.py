"""The table of ground truths: the printed numbers that have a tolerance, of several suites, and whether ours reproduce
them. Rows of suites that have not been run are in it, too.
"""

import statistics
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from harness.plan.specs import GROUND_TRUTH
from harness.printable import counted
from harness.report import outputs, suite_table
from harness.report.content import NOTHING, Cell, Column, Line, Table
from harness.report.grouping import grouped
from harness.report.printed_numbers import Reproduction, furthest, together
from harness.report.study import Study
from harness.report.table_rows import Row

COLUMNS = (
    Column(name="target", key="label"),
    Column(name="printed", numeric=True, key="printed"),
    Column(name="ours", numeric=True, key="test_ppl"),
    Column(name="seeds"),
    Column(name="difference", numeric=True, key="difference"),
    Column(name="allowed", numeric=True),
    Column(name="reproduced", key="reproduced"),
    Column(name="minutes", numeric=True),
    Column(name="device"),
    Column(name="source"),
)
EMPTY = Cell(text=NOTHING)
MEANING = (
    "ours: mean ± standard deviation over the seeds that are ok. reproduced: yes if the mean differs from the printed "
    "number by at most what is allowed; of several epochs, if each does, and the difference is the largest of them."
)


def table(studies: Sequence[Study]) -> Table:
    """The table of some suites, in their order."""
    ok = [record.environment for study in studies for record in study.records.values() if record.status == "ok"]
    threads = ", ".join(dict.fromkeys(counted(each.threads, "thread") for each in ok))
    minutes = f"minutes: of training, for one trial, with {threads}; of each device, where there are several."
    lines, notes = [], [MEANING, *([minutes] if ok else [])]
    for study in studies:
        for row, found in study.findings.reproduced.items():
            for _, several in groupby(found, key=lambda each: (each.printed.metric, each.printed.epoch is None)):
                numbers = list(several)
                lines.append(_line(study, row, numbers))
                notes += [f"{_name(study, row)}: {each}." for each in numbers]
    sources = dict.fromkeys(source for study in studies for source in study.evidence.printed.sources)
    title = "Ground truths: published numbers trained again"
    return Table(title=title, columns=COLUMNS, lines=tuple(lines), notes=(*notes, *(f"{each}." for each in sources)))


def write(studies: Sequence[Study], results: Path) -> list[Path]:
    """Write the table of some studies in all forms below results/tables; returns the paths, markdown first. Without any
    record nothing is written.

    Raises: StorageError.
    """
    if not any(study.records for study in studies):
        return []
    files = suite_table.files_of(table(studies), GROUND_TRUTH, results)
    outputs.write(files)
    return list(files)


def _name(study: Study, row: Row) -> str:
    """'zaremba: softmax, ptb, 13 epochs'. The head has parameters where several rows have it."""
    trial = row.trials[0]
    alike = [each for each in study.rows if each.trials[0].head.name == trial.head.name]
    parts = [row.head if len(alike) > 1 else trial.head.name, row.corpus]
    parts += [counted(trial.train.epochs, "epoch")] if trial.train.epochs else []
    return f"{study.suite.name.removeprefix(f'{GROUND_TRUTH}_')}: {', '.join(parts)}"


def _line(study: Study, row: Row, numbers: list[Reproduction]) -> Line:
    difference, tolerances = furthest(numbers), dict.fromkeys(f"{each.printed.tolerance:g} %" for each in numbers)
    first, last = numbers[0], numbers[-1]
    minutes, device = _minutes(row)
    until = f" to {last.printed.epoch}" if len(numbers) > 1 else ""
    cells = {
        "target": Cell(text=f"{_name(study, row)}, {first.metric}{until}"),
        "printed": Cell(
            text=", ".join(each.printed.value for each in numbers),
            value=first.printed.number if first is last else None,
        ),
        "ours": _ours(numbers),
        "seeds": Cell(text=row.state),
        "difference": EMPTY if difference is None else Cell(text=f"{difference:+.2f} %", value=difference),
        "allowed": Cell(text=", ".join(tolerances), value=first.printed.tolerance if len(tolerances) == 1 else None),
        "reproduced": Cell(text=together(numbers)),
        "minutes": minutes,
        "device": device,
        "source": Cell(text=", ".join(dict.fromkeys(each.printed.source for each in numbers))),
    }
    return Line(cells=tuple(cells[column.name] for column in COLUMNS), trials=tuple(each.id for each in row.trials))


def _ours(numbers: list[Reproduction]) -> Cell:
    """'114.92 ± 0.40', or the means of several epochs: '161.30, 143.60'."""
    if not any(each.values for each in numbers):
        return EMPTY
    if len(numbers) > 1:
        return Cell(text=", ".join(NOTHING if each.mean is None else f"{each.mean:.2f}" for each in numbers))
    return Cell.mean(numbers[0].values, 2)


def _minutes(row: Row) -> tuple[Cell, Cell]:
    """Minutes of training, a mean over the ok trials of each device, and the devices: '35.2; 4.1' and 'A; B'."""
    ok = [row.records[seed] for seed in row.ok_seeds if "train_minutes" in row.records[seed].metrics]
    on = grouped((record.environment.device, record.metrics["train_minutes"]) for record in ok)
    if not on:
        return EMPTY, EMPTY
    means = {device: statistics.fmean(values) for device, values in sorted(on.items())}
    minutes = "; ".join(f"{mean:.1f}" for mean in means.values())
    (value, *others) = means.values()
    return Cell(text=minutes, value=None if others else value), Cell(text="; ".join(means))
