"""What `harness run` would do with a suite: which trials can run now, and their state."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.code.hashes import is_outdated
from harness.corpora.corpus import CorpusFacts
from harness.plan.selection import chosen_trials, chosen_tuning, met_rows
from harness.plan.specs import TrialSpec
from harness.plan.suite import Row, Suite
from harness.plan.tuning import Point
from harness.printable import counted
from harness.records import choices, store
from harness.records.record import TrialRecord
from harness.report import printed_numbers, retraining

OUTDATED = "outdated"  # the state of a trial that is 'ok' and whose code has changed since


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrial:
    """One trial of a plan.

    Args:
        state: the status of its record, or 'outdated', 'interrupted' (a checkpoint but no record) or 'missing'.
    """

    spec: TrialSpec
    state: str
    finished: bool
    params_total: int
    params_head: int
    point: Point = field(default_factory=dict)
    minutes: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The trial's entry in `harness plan --json`."""
        spec = self.spec
        entry = {"id": spec.id, **{kind: getattr(spec, kind).model_dump() for kind in ("corpus", "backbone", "head")}}
        entry |= {"seed": spec.seed, "params_total": self.params_total, "params_head": self.params_head}
        entry |= {"state": self.state, **({"point": self.point} if self.point else {})}
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterTrials:
    """A row whose trials have no ids yet: they depend on the point that tuning will choose.

    Args:
        lost: every tuning trial of the row failed, so these trials will not be trained.
    """

    row: Row
    lost: bool

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(trial.seed for trial in self.row.candidates[0].trials)

    @property
    def like(self) -> TrialSpec:
        """A trial like those: the first tuning trial of the row; of a size of a ladder that is not tuned, one with the
        learning rate of the suite.
        """
        first = self.row.candidates[0]
        return first.longest if first.tuning_trials else first.trials[0]

    def as_json(self) -> dict[str, Any]:
        """The row's entry in `harness plan --json`; its components are without what is tuned."""
        corpus, backbone, head = self.row.key
        parts = {"corpus": corpus, "backbone": backbone, "head": head}
        return {**parts, "seeds": self.seeds, "first": self.like.id, "lost": self.lost}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSuite:
    """The selected trials of a suite.

    Args:
        outdated: a sentence with a command for each file of code that has changed since trials were made.
        later: the trials of the table that have no id yet, because no point is chosen for their row: one entry for each
            row, with its seeds.
    """

    suite: Suite
    trials: list[PlannedTrial]
    outdated: list[str]
    tuning: list[PlannedTrial] = field(default_factory=list)
    later: list[LaterTrials] = field(default_factory=list)

    def __str__(self) -> str:
        if self.suite.tune is None:
            return _counts(self.trials)
        later = sum(len(each.seeds) for each in self.later)
        after = f", {later} more after tuning" if later else ""
        return (
            f"stage 1, tuning: {_counts(self.tuning)}, {self.suite.tuning_budget} each; "
            f"stage 2, the table: {_counts(self.trials)}{after}, {self.suite.table_budget} each"
        )

    @property
    def models(self) -> list[TrialSpec]:
        """Trials with every model of the table; for a row without a point, one that is like its trials."""
        return [*(each.spec for each in self.trials), *(each.like for each in self.later)]

    def to_run(self) -> Iterator[tuple[TrialSpec, bool]]:
        """Each trial without a record, and whether it is a tuning trial. A trial without an id is given as
        one that is like it.
        """
        yield from ((each.spec, False) for each in self.trials if not each.finished)
        yield from ((each.spec, True) for each in self.tuning if not each.finished)
        yield from ((row.like, False) for row in self.later if not row.lost for _ in row.seeds)

    def as_json(self) -> dict[str, Any]:
        """The content of `harness plan --json`."""
        entries = [trial.as_json() for trial in self.trials]
        texts = {name: _text_as_json(facts) for name, facts in self.suite.corpora.items()}
        made = {"suite": self.suite.name, "version": self.suite.version, "corpora": texts, "trials": entries}
        if self.suite.tune is None:
            return made
        later = [each.as_json() for each in self.later]
        return {**made, "tuning": [trial.as_json() for trial in self.tuning], "after_tuning": later}


def _text_as_json(facts: CorpusFacts) -> dict[str, Any]:
    about = {} if facts.text is None else asdict(facts.text)
    known = {"vocab_size": facts.vocab_size, "num_tokens": facts.num_tokens, "counting": facts.counting}
    return {**known, "in_train": dict(facts.in_train), **about}


def planned(
    suite: Suite, results: Path, only: tuple[str, ...], warn: Callable[[str], None], *options: str
) -> PlannedSuite:
    """The trials of a suite that `only` selects, with their state. Nothing is downloaded, allocated or written.

    Args:
        warn: called with a sentence for each record that is damaged or does not fit the suite; it counts as missing.
        options: what a command needs beside the suite to find the records, for example '--results DIR'.
    Raises: SuiteError when a printed table or a condition of `only` is unknown.
    """
    printed_numbers.load(suite)
    read = choices.read(suite, results, warn)
    suite, records = read.suite, read.found
    specs, tuning = chosen_trials(suite, only), chosen_tuning(suite, only)
    interrupted = store.interrupted(read.runs, [spec.id for spec in (*tuning, *specs)])

    def state(spec: TrialSpec) -> PlannedTrial:
        candidate = suite.candidate_of(spec)
        return PlannedTrial(
            spec=spec,
            state=_state(records.get(spec.id), interrupted=spec.id in interrupted),
            finished=spec.id in records,
            params_total=candidate.params[0],
            params_head=candidate.params[1],
            point=candidate.point,
            minutes=None if spec.id not in records else records[spec.id].metrics.get("train_minutes"),
        )

    return PlannedSuite(
        suite=suite,
        trials=list(map(state, specs)),
        tuning=list(map(state, tuning)),
        later=_later(met_rows(suite, only)),
        outdated=retraining.sentences(suite, (*tuning, *specs), records, *options),
    )


def _later(rows: list[Row]) -> list[LaterTrials]:
    found = []
    for row in rows:
        if row.chosen is None:
            # A rate that follows another is lost with it.
            size = row.size if row.nearest is None else row.nearest
            of = [each for each in rows if (each.family, each.size) == (row.family, size)]
            lost = any(each.chosen is None and each.choice is not None for each in of)
            found.append(LaterTrials(row=row, lost=lost))
    return found


def _counts(trials: list[PlannedTrial]) -> str:
    missing = sum(not trial.finished for trial in trials)
    outdated = sum(trial.state == OUTDATED for trial in trials)
    return f"{counted(len(trials), 'trial')}, {missing} to run" + (f", {outdated} outdated" if outdated else "")


def _state(record: TrialRecord | None, *, interrupted: bool) -> str:
    if record is None:
        return "interrupted" if interrupted else "missing"
    return OUTDATED if is_outdated(record) else record.status
