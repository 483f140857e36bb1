"""What a results folder holds that no run needs any more. Nothing is changed here; pruning.py removes it."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from harness import plan
from harness.errors import ExecutionError, HarnessError, nearest
from harness.machine.scratch import abandoned_scratch
from harness.plan import reader
from harness.plan.places import name_of, results_option
from harness.plan.two_stages import possible_trials
from harness.records import store
from harness.report import history
from harness.report.history import bytes_below
from harness.training.checkpoint import BEST_PATTERN, PATTERN
from harness.trial.run import RESUMABLE

GONE = ".pruned-"  # begins the name of the folder of a trial that was exported and is being removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Unneeded:
    """What is not needed of the folder of one suite.

    Args:
        file: the suite file; None: there is none, and all trials count as not planned.
        unplanned: trials with a record that the suite does not plan -> bytes of the trial's folder.
        heads: the same trials -> head and seed.
        checkpoints: finished trials that the suite plans -> bytes of their checkpoints.
        temporary: files and folders of processes that have ended -> bytes.
    """

    suite: str
    file: Path | None
    unplanned: dict[str, int] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    checkpoints: dict[str, int] = field(default_factory=dict)
    temporary: dict[Path, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not (self.unplanned or self.checkpoints or self.temporary)


def suite_files(given: Iterable[Path], folder: Path = Path("suites")) -> list[Path]:
    """The suite files of ./suites, and the given ones; a given folder stands for its files.

    Raises: ExecutionError when a given path does not exist.
    """
    found = sorted(folder.glob("*.yaml"))
    for place in given:
        if not place.exists():
            raise ExecutionError(f"--suite {place}: there is no such file or folder")
        found += sorted(place.glob("*.yaml")) if place.is_dir() else [place]
    return list({place.resolve(): place for place in found}.values())


def find(results: Path, files: Iterable[Path], only: str | None, warn: Callable[[str], None]) -> list[Unneeded]:
    """Look for what is not needed in the folder of each suite.

    Args:
        results: the results folder.
        files: the suite files that count. Of a suite without a file, and of one whose file has a mistake, all records
            are kept.
        only: the name of the one suite to look at. If it has no file, all of its records are not needed.
        warn: receives a sentence for each suite whose records are kept, and for each record that does not verify.
    Raises: SuiteError when a file is no YAML: which suite it is cannot be read. ExecutionError when there is no suite
        `only`.
    """
    known = history.suites(results)
    if only is not None and only not in known:
        raise ExecutionError(f"{results / 'runs'} holds no suite '{only}'{nearest(only, known)}")
    by_name: dict[str, list[Path]] = {}
    for file in files:
        reader.read(file)  # a file that is no YAML may be of any suite, and is an error
        by_name.setdefault(name_of(file), []).append(file)
    found = []
    for suite in known if only is None else [only]:
        of_suite = by_name.get(suite, [])
        planned = None if not of_suite and only is None else _planned(of_suite, warn)
        if not of_suite and only is None:
            again = shlex.join(["harness", "runs", suite, "--prune", *results_option(results)])
            warn(
                f"the records of '{suite}' are kept: no suite file has that name; name it (`{again}`) to remove them, "
                "or name its file with --suite"
            )
        found.append(_unneeded(results, suite, of_suite[0] if of_suite else None, planned, warn))
    return [each for each in found if not each.is_empty]


def files_of_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a trial, and the weights that they name."""
    return [*folder.glob(PATTERN), *folder.glob(BEST_PATTERN)]


def _planned(files: list[Path], warn: Callable[[str], None]) -> set[str] | None:
    """The ids of all trials that suite files may have; None when a file has a mistake."""
    trials: set[str] = set()
    for file in files:
        try:
            trials |= {trial.id for trial in possible_trials(plan.load(file))}
        except HarnessError as mistake:
            reason = str(mistake).partition("\n")[0]
            warn(f"all records of the suite {file} are kept, because it cannot be read: {reason}")
            return None
    return trials


def _unneeded(
    results: Path, suite: str, file: Path | None, planned: set[str] | None, warn: Callable[[str], None]
) -> Unneeded:
    runs = store.runs_folder(results, suite)
    trials = history.trial_ids(runs)
    records, damaged = store.load_all(runs, trials)
    for sentence in damaged:
        warn(f"{sentence}; it is kept")
    own = {trial for trial, record in records.items() if record.suite == suite}  # an export refuses the others
    unplanned = set() if planned is None else own - planned
    ended = {trial for trial in records.keys() - unplanned if records[trial].status not in RESUMABLE}
    checkpoints = {trial: files_of_checkpoints(store.folder(runs, trial)) for trial in sorted(ended)}
    temporary = [place for trial in trials if trial not in unplanned for place in (runs / trial).glob(".*.tmp")]
    folders = [*abandoned_scratch(runs), *runs.glob(f"{GONE}*")]
    return Unneeded(
        suite=suite,
        file=file,
        unplanned={trial: bytes_below(store.folder(runs, trial)) for trial in sorted(unplanned)},
        heads={trial: f"{records[trial].spec.head}, seed {records[trial].spec.seed}" for trial in sorted(unplanned)},
        checkpoints={trial: sum(map(_size, of)) for trial, of in checkpoints.items() if of},
        temporary={**{each: _size(each) for each in temporary}, **{each: bytes_below(each) for each in folders}},
    )


def _size(place: Path) -> int:
    """The size of a file; 0 if a running trial has removed it meanwhile."""
    try:
        return place.lstat().st_size
    except FileNotFoundError:
        return 0
