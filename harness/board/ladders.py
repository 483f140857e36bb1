"""The tables of suites with a ladder of sizes: a group of their own in the leaderboard, and on the site."""

from collections.abc import Callable, Iterable
from pathlib import Path

from harness import plan
from harness.errors import SuiteError
from harness.plan.reader import ENDING, read
from harness.report import layouts, study
from harness.report.content import Table
from harness.report.study import Study


def studies(results: Path, suites: Path, names: Iterable[str], warn: Callable[[str], None]) -> list[Study]:
    """The studies of those suites that have a ladder, by name. Files of others are read, and no more.

    Args:
        names: of suites with records.
        warn: called with a sentence for a suite whose file is not valid.
    """
    found = []
    for name in sorted(names):
        path = suites / f"{name}{ENDING}"
        try:
            if path.is_file() and "ladder" in read(path)[0]:
                found.append(study.load(plan.load(path), results, warn=warn))
        except SuiteError as error:
            warn(f"{path} is not valid, so its ladder is left out ({'; '.join(error.problems)})")
    return found


def tables(found: Iterable[Study]) -> tuple[Table, ...]:
    """The table of each ladder that has a result at every size, with its sentence."""
    made = []
    for each in found:
        table = each.build("ladder")
        if any(column.key == "gain" for column in table.columns):
            made.append(layouts.select(table))
    return tuple(made)
