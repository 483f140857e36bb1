"""The tables of suites with a ladder of sizes: a group of their own in the leaderboard, and on the site."""

from collections.abc import Callable, Iterable
from pathlib import Path

from harness import bundled, plan
from harness.errors import SuiteError
from harness.plan.reader import ENDING, read
from harness.records import contents, store
from harness.records.record import TrialRecord
from harness.report import layouts, study
from harness.report.content import Table
from harness.report.study import Study


def suite_files(results: Path, suites: Path) -> dict[str, Path | None]:
    """The name of each suite with records -> its file, in a folder or of the package; None without one."""
    found = {}
    for name in sorted({place.parent.parent.name for place in (results / "runs").glob(f"*/*/{store.FILE_NAME}")}):
        places = suites / f"{name}{ENDING}", bundled("suites") / f"{name}{ENDING}"
        found[name] = next((place for place in places if place.is_file()), None)
    return found


def studies(results: Path, suites: Path, warn: Callable[[str], None]) -> list[Study]:
    """The studies of those suites with records that have a ladder, by name. Files of others are read, and no more.

    Args:
        suites: the folder of suite files. Those of the package are found, too.
        warn: called with a sentence for a suite whose file is not valid, or that plans less than there are records.
    """
    found = []
    for name, path in suite_files(results, suites).items():
        try:
            if path is not None and _has_ladder(path, name):
                read_study = study.load(plan.load(path), results, warn=warn)
                found.append(read_study)
                if others := contents.of_others(read_study.suite, read_study.evidence.runs):
                    warn(f"{path}: {others}")
        except SuiteError as error:
            warn(f"{path} is not valid, so its ladder is left out ({'; '.join(error.problems)})")
    return found


def _has_ladder(path: Path, name: str) -> bool:
    try:
        data, _ = read(path)
    except SuiteError:  # then nothing is known of a ladder
        return False
    return "ladder" in data and data.get("name") == name


def in_hand(found: Iterable[Study]) -> dict[Path, dict[str, TrialRecord]]:
    """The folder of a suite -> its records that were read, by id."""
    return {each.evidence.runs: {**each.evidence.tuning, **each.records} for each in found}


def tables(found: Iterable[Study], *, wide: bool = False) -> tuple[Table, ...]:
    """The table of each ladder that has a result at every size, with its sentence; `wide`: with all columns."""
    made = []
    for each in found:
        table = each.build("ladder")
        if any(column.key == "gain" for column in table.columns):
            made.append(layouts.select(table, wide=wide))
    return tuple(made)
