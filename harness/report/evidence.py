"""Everything that a report on a suite is made of: the plan, the records and timings on disk, the printed numbers."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from harness.errors import RecordError
from harness.plan.suite import Suite
from harness.records import sidecars, store
from harness.records.choices import Records
from harness.records.record import TrialRecord
from harness.records.sidecars import Kept, Sidecar, Timing, TokenScores
from harness.report import history, printed_numbers
from harness.report.outputs import Trials
from harness.report.printed_numbers import PrintedNumbers
from harness.report.row_facts import RowFacts, rows
from harness.report.tuning_doubts import doubts_of
from harness.report.versions import Changed, changed


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was read of a suite's trials.

    Args:
        timings: of exclusive passes, by trial id.
        replicates: other trainings of a trial, by trial id.
        further: records of the table's rows that are of none of its trials: of other seeds or settings of training.
        outdated: the trials, tuning trials too, whose code has changed since, see harness.report.versions.
    """

    suite: Suite
    runs: Path
    records: dict[str, TrialRecord]
    timings: dict[str, Timing]
    interrupted: frozenset[str]
    printed: PrintedNumbers
    warn: Callable[[str], None]
    outdated: Changed = field(default_factory=dict)
    unscored: frozenset[str] = frozenset()
    tuning: dict[str, TrialRecord] = field(default_factory=dict)
    replicates: dict[str, tuple[TrialRecord, ...]] = field(default_factory=dict)
    further: tuple[TrialRecord, ...] = ()

    @cached_property
    def rows(self) -> list[RowFacts]:
        """The trials in groups that differ only in their seed, in the order of the suite file."""
        return rows(self.suite, self.records, self.interrupted, self.outdated, doubts_of(self.suite, self.tuning))

    @property
    def finished(self) -> list[TrialRecord]:
        """The records of the table's trials, in the order of the suite."""
        return [self.records[trial.id] for trial in self.suite.trials if trial.id in self.records]

    @property
    def rows_without_point(self) -> int:
        """The number of rows that are not in the table because no point is chosen for them; 0 without `tune`."""
        return sum(row.chosen is None for row in self.suite.rows)

    @property
    def untuned_controls(self) -> set[tuple[str, str]]:
        """Corpus and backbone of controls that are not in the table because no point is chosen for them."""
        untuned = [row for row in self.suite.rows if row.is_control and row.chosen is None]
        return {(row.corpus.name, row.backbone.name) for row in untuned}

    @property
    def trials(self) -> Trials:
        """The numbers of ok, planned and invalid trials."""
        statuses = Counter(record.status for record in self.finished)
        return Trials(statuses["ok"], len(self.suite.trials), statuses["invalid"])

    def token_scores(self, trial_id: str) -> TokenScores | None:
        """The token scores of a trial; None if they were not stored, or do not verify."""
        return self.stored(sidecars.TOKEN_NLL, trial_id)

    def stored(self, sidecar: Sidecar[Kept], trial_id: str) -> Kept | None:
        """What lies beside the record of a trial; None if nothing is stored, or it does not verify."""
        return _stored(sidecar, self.runs, self.records[trial_id], self.warn)


def gather(records: Records, warn: Callable[[str], None], printed: PrintedNumbers | None = None) -> Evidence:
    """Read what lies beside the records of a suite, and its printed numbers.

    Args:
        warn: called with a sentence for each file that does not verify.
        printed: the printed numbers of the suite where they are loaded already; None: load them.
    Raises: SuiteError where the suite names a printed table that is not known.
    """
    suite, runs, found = records.suite, records.runs, records.table
    timed, warnings = sidecars.TIMING.load_all(runs, found)
    replicates, more = sidecars.REPLICATES.load_all(runs, found)
    for warning in (*warnings, *more):
        warn(warning)
    ok = {trial_id for trial_id, record in found.items() if record.status == "ok"}
    scored = {trial_id for trial_id in ok if _stored(sidecars.TOKEN_NLL, runs, found[trial_id], warn) is not None}
    return Evidence(
        suite=suite,
        runs=runs,
        records=found,
        timings=timed,
        interrupted=frozenset(store.interrupted(runs, [trial.id for trial in suite.trials])) - found.keys(),
        printed=printed_numbers.load(suite) if printed is None else printed,
        warn=warn,
        unscored=frozenset(ok - scored if suite.measure.token_nll else ()),
        outdated=changed(records.found.values()),
        tuning=records.tuning,
        replicates=replicates,
        further=_further(suite, runs),
    )


def _further(suite: Suite, runs: Path) -> tuple[TrialRecord, ...]:
    """Records of the folder whose corpus, backbone and head a row of the table has, and that no plan of it has. Those
    of a text that has changed since do not count.
    """
    planned = {trial.id for trial in suite.possible_trials}
    others = [each for each in history.trial_ids(runs) if each not in planned] if runs.is_dir() else []
    if not others:
        return ()
    found, _ = store.load_all(runs, others)
    rows = {row.key: row for row in suite.rows if row.trials and not row.trials[0].is_ngram}
    components = {(str(trial.backbone), str(trial.head)) for trial in suite.trials}
    further = []
    for record in found.values():
        spec, contents = record.spec, record.contents
        row = rows.get(suite.key_of(spec))
        same_text = row is not None and (contents is None or contents.corpus == row.corpus.content)
        same_parts = (str(spec.backbone), str(spec.head)) in components
        if not record.tuning and same_parts and same_text:
            further.append(record)
    return tuple(further)


def _stored(sidecar: Sidecar[Kept], runs: Path, record: TrialRecord, warn: Callable[[str], None]) -> Kept | None:
    try:
        return sidecar.load(runs, record)
    except RecordError as damaged:
        warn(str(damaged))
        return None
