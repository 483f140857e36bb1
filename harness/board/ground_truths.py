"""Ground truths: published numbers with a tolerance. Their suites are run; one table says which are reproduced.

Rows of suites that have not been run are in the table, too.
"""

import statistics
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Literal

from harness import plan
from harness.execution.executors import RunOptions
from harness.execution.live import Reporter
from harness.execution.run_suite import all_ok, run_suite
from harness.plan.reader import shown
from harness.plan.specs import GROUND_TRUTH
from harness.plan.suite import Suite
from harness.printable import counted
from harness.report import outputs, suite_table
from harness.report.content import NOTHING, Cell, Column, Line, Table
from harness.report.grouping import grouped
from harness.report.layouts import places_of, summary
from harness.report.printed_numbers import Reproduction, furthest, together
from harness.report.row_facts import RowFacts
from harness.report.study import Study, load

SHORT_MINUTES = 120  # of one core, for all trials of a suite
Which = Literal["short", "all", "none"]
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
OF_TRUTHS = ("label", "printed", "test_ppl", "difference", "reproduced")  # keys of the columns of a summary
EMPTY = Cell(text=NOTHING)
MEANING = (
    "ours: mean ± standard deviation over the seeds that are ok. reproduced: yes if the mean differs from the printed "
    "number by at most what is allowed; of several epochs, if each does, and the difference is the largest of them."
)


def reproduce(
    folder: Path, which: Which, *, results: Path, data: Path, options: RunOptions, reporter: Reporter
) -> bool:
    """Run suites of ground truths, one after the other, and write the table of all of them.

    Args:
        which: the suites to run: 'short', those of at most SHORT_MINUTES; 'all'; 'none': only write the table.
    Returns: whether all trials that were run are ok, and all their numbers reproduced.
    Raises: what run_suite raises.
    """
    suites = found_in(folder)
    short = [suite for suite in suites if suite.core_minutes is not None and suite.core_minutes <= SHORT_MINUTES]
    chosen = {"short": short, "all": suites, "none": []}[which]
    ran: dict[str, Study] = {}

    def studies() -> tuple[Study, ...]:
        return tuple(ran.get(suite.name) or load(suite, results, warn=reporter.warn) for suite in suites)

    try:
        for number, suite in enumerate(chosen, start=1):
            reporter.say(f"{number} of {counted(len(chosen), 'suite')}: {shown(suite.path)}{_cost(suite)}")
            ran[suite.name] = run_suite(suite, results=results, data=data, options=options, reporter=reporter)
    except KeyboardInterrupt:
        write(studies(), results)
        raise
    found = studies()
    made = table(found)
    reporter.table(lambda: of_truths(made), lambda: suite_table.text(made))
    if files := write(found, results):
        reporter.table_files(files)
    left = [suite for suite in suites if suite not in chosen]
    if left and which == "short":
        names = ", ".join(f"{suite.name}{_cost(suite)}" for suite in left)
        reporter.say(f"not run, because they take longer (--all runs them): {names}")
    answers = [together(numbers) for each in ran.values() for numbers in each.findings.reproduced.values() if numbers]
    return all(map(all_ok, ran.values())) and set(answers) <= {"yes"}


def found_in(folder: Path) -> list[Suite]:
    """The suites of ground truths in a folder, cheapest first; last those whose cost is not known.

    Raises: SuiteError.
    """
    paths = sorted(folder.glob(f"{GROUND_TRUTH}_*.yaml"))
    return sorted(map(plan.load, paths), key=lambda suite: (suite.core_minutes is None, suite.core_minutes or 0))


def _cost(suite: Suite) -> str:
    return "" if suite.core_minutes is None else f" ({suite.core_minutes:g} minutes on one core)"


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


def of_truths(table: Table) -> Table:
    """The summary of the table of ground truths."""
    return summary(table, places_of(table, OF_TRUTHS))


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


def _name(study: Study, row: RowFacts) -> str:
    """'zaremba: softmax, ptb, 13 epochs'. The head has parameters where several rows have it."""
    trial = row.spec
    alike = [each for each in study.rows if each.spec.head.name == trial.head.name]
    parts = [row.head if len(alike) > 1 else trial.head.name, row.corpus]
    parts += [counted(trial.train.epochs, "epoch")] if trial.train.epochs else []
    return f"{study.suite.name.removeprefix(f'{GROUND_TRUTH}_')}: {', '.join(parts)}"


def _line(study: Study, row: RowFacts, numbers: list[Reproduction]) -> Line:
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
    return Line(cells=tuple(cells[column.name] for column in COLUMNS), trials=row.ids)


def _ours(numbers: list[Reproduction]) -> Cell:
    """'114.92 ± 0.40', or the means of several epochs: '161.30, 143.60'."""
    if not any(each.values for each in numbers):
        return EMPTY
    if len(numbers) > 1:
        return Cell(text=", ".join(NOTHING if each.mean is None else f"{each.mean:.2f}" for each in numbers))
    return Cell.mean(numbers[0].values, 2)


def _minutes(row: RowFacts) -> tuple[Cell, Cell]:
    """Minutes of training, a mean over the ok trials of each device, and the devices: '35.2; 4.1' and 'A; B'."""
    ok = [record for record in row.ok if "train_minutes" in record.metrics]
    on = grouped((record.environment.device, record.metrics["train_minutes"]) for record in ok)
    if not on:
        return EMPTY, EMPTY
    means = {device: statistics.fmean(values) for device, values in sorted(on.items())}
    minutes = "; ".join(f"{mean:.1f}" for mean in means.values())
    (value, *others) = means.values()
    return Cell(text=minutes, value=None if others else value), Cell(text="; ".join(means))
