"""Run the suites whose printed numbers have a tolerance, and write one table of what was reproduced."""

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
from harness.report import ground_truth, layouts, study, suite_table
from harness.report.printed_numbers import together
from harness.report.study import Study

SHORT_MINUTES = 120  # of one core, for all trials of a suite
Which = Literal["short", "all", "none"]


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
        return tuple(ran.get(suite.name) or study.load(suite, results, warn=reporter.warn) for suite in suites)

    try:
        for number, suite in enumerate(chosen, start=1):
            reporter.say(f"{number} of {counted(len(chosen), 'suite')}: {shown(suite.path)}{_cost(suite)}")
            ran[suite.name] = run_suite(suite, results=results, data=data, options=options, reporter=reporter)
    except KeyboardInterrupt:
        ground_truth.write(studies(), results)
        raise
    found = studies()
    made = ground_truth.table(found)
    reporter.table(lambda: layouts.of_truths(made), lambda: suite_table.text(made))
    if files := ground_truth.write(found, results):
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
