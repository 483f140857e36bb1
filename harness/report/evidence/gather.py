"""All that a report on a suite is made of: the plan, what was found of it on disk, and the printed numbers."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness.code.fingerprints import UNKNOWN, harness_code
from harness.errors import RecordError
from harness.plan.specs import Suite
from harness.records import store, timings, token_nll
from harness.records.contents import of_suite
from harness.records.record import TrialRecord
from harness.records.timings import Timing
from harness.records.token_nll import TokenScores
from harness.report.evidence import printed_numbers
from harness.report.evidence.printed_numbers import PrintedNumbers
from harness.report.evidence.versions import Changed, changed
from harness.report.outputs import Trials


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a suite's trials.

    Args:
        runs: the folder of the suite's trials.
        records: those that verify, by trial id.
        timings: from exclusive passes, by trial id.
        interrupted: ids of trials without a record that have a checkpoint.
        unscored: ids of ok trials without scores of tokens, where the suite has them kept.
        printed: what the suite compares with.
        tell: hears a sentence for each file that does not verify, and so does not count.
        outdated: the trials whose code has changed since, see harness.report.evidence.versions.
        harness_code: the hash of the harness' own code as it is here.
    """

    suite: Suite
    runs: Path
    records: dict[str, TrialRecord]
    timings: dict[str, Timing]
    interrupted: frozenset[str]
    printed: PrintedNumbers
    tell: Callable[[str], None]
    outdated: Changed = field(default_factory=dict)
    harness_code: str = UNKNOWN
    unscored: frozenset[str] = frozenset()

    @property
    def trials(self) -> Trials:
        """How many are ok, planned and invalid."""
        statuses = Counter(self.records[trial.id].status for trial in self.suite.trials if trial.id in self.records)
        return Trials(statuses["ok"], len(self.suite.trials), statuses["invalid"])

    def token_scores(self, trial_id: str) -> TokenScores | None:
        """What a trial's best weights give each test token; None where that was not kept, or does not verify."""
        try:
            return token_nll.load(self.runs, self.records[trial_id])
        except RecordError as damaged:
            self.tell(str(damaged))
            return None


def gather(suite: Suite, results: Path, tell: Callable[[str], None]) -> Evidence:
    """Read what there is of a suite below a results folder.

    Args:
        tell: hears a sentence for each file that does not verify.
    Raises: SuiteError where a printed table is not known that the suite compares with.
    """
    runs, ids = store.runs_folder(results, suite.name), [trial.id for trial in suite.trials]
    found, warnings = store.load_all(runs, ids)
    found, misfits = of_suite(found, suite)
    timed, more = timings.load_all(runs, found)
    for warning in (*warnings, *misfits, *more):
        tell(warning)
    ok = {trial_id for trial_id, record in found.items() if record.status == "ok"}
    scored = {trial_id for trial_id in ok if _has_scores(runs, found[trial_id], tell)}
    return Evidence(
        suite=suite,
        runs=runs,
        records=found,
        timings=timed,
        interrupted=frozenset(store.interrupted(runs, ids)) - found.keys(),
        printed=printed_numbers.load(suite),
        tell=tell,
        unscored=frozenset(ok - scored if suite.measure.token_nll else ()),
        outdated=changed(found.values()),
        harness_code=harness_code().sha256,
    )


def _has_scores(runs: Path, record: TrialRecord, tell: Callable[[str], None]) -> bool:
    """Whether the scores of tokens beside a record add up to its test perplexity; `tell` hears where they do not."""
    try:
        return token_nll.load(runs, record) is not None
    except RecordError as contradicted:
        tell(str(contradicted))
        return False
