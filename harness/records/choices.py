"""The points that tuning has chosen, stored beside the records: results/runs/<suite>/tuning.json.

The file has its own checksum. It has the choices of every version of the suite (of other budgets, by --set): a choice
belongs to a row if it was made of the row's tuning trials, and of no others.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from harness.errors import RecordError
from harness.plan.specs import TrialSpec, canonical
from harness.plan.suite import Row, Suite, with_choices
from harness.plan.tuning import METHODS, Choice, point_text
from harness.records import sealed, store
from harness.records.contents import of_suite
from harness.records.record import TrialRecord

SCHEMA = 1
FILE_NAME = "tuning.json"
MAX_BYTES = 16 * 1024**2
EXPECTED = ("ok", "diverged")  # statuses of a tuning trial; with any other one its row had fewer attempts than others


class Tuning(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: int = SCHEMA
    suite: str
    choices: Annotated[tuple[Choice, ...], Field(min_length=1)]


def load(runs: Path) -> tuple[Choice, ...]:
    """The stored choices of a suite; () if there is no file.

    Raises: RecordError when the file is damaged or edited, is of another suite or schema, or contradicts itself.
    """
    with sealed.remedied(f"`harness run {runs.name}` chooses again from the records of the tuning trials"):
        content = sealed.read(runs / FILE_NAME, MAX_BYTES)
        return () if content is None else parsed(content, runs.name, runs / FILE_NAME)


def readable(runs: Path, warn: Callable[[str], None]) -> tuple[Choice, ...]:
    """The stored choices as `load` returns them; () with a warning if the file does not verify."""
    try:
        return load(runs)
    except RecordError as damage:
        warn(str(damage))
        return ()


def parsed(content: bytes, suite: str, place: Path) -> tuple[Choice, ...]:
    """The choices in the content of a file; `place` is for messages. Raises as `load` does."""
    found = sealed.parsed(content, Tuning, place, schema=SCHEMA)
    if found.suite != suite:
        raise RecordError(f"{place}: holds the choices of the suite '{found.suite}'")
    for choice in found.choices:
        if not METHODS[choice.method].allows(choice):
            made_of = f"the perplexities that it names, by the method '{choice.method}'"
            raise RecordError(f"{place}: the choice of '{choice.row}' cannot be made of {made_of}")
    return found.choices


def save(runs: Path, made: Iterable[Choice]) -> None:
    """Add choices to the file. Those of the same tuning trials are replaced, and so is a damaged file.

    Raises: StorageError.
    """
    kept = {frozenset(each.valid_ppl): each for each in (*readable(runs, lambda damage: None), *made)}
    sealed.save(Tuning(suite=runs.name, choices=tuple(kept.values())), runs / FILE_NAME)


def stored(found: Iterable[Choice], row: Row, warn: Callable[[str], None]) -> Choice | None:
    """The choice that was made of a row's tuning trials; None if there is none.

    Args:
        warn: called with a sentence if the choice is not one of the row's points at these perplexities: it does not
            count then.
    """
    trials = {trial.id for trial in row.tuning_trials}
    of_row = (each for each in found if each.valid_ppl.keys() <= trials)
    both = next(((each, made) for each in of_row if (made := row.choose(each.valid_ppl)) is not None), None)
    if both is None:
        return None
    kept, made = both
    if (kept.trial, canonical(kept.point)) == (made.trial, canonical(made.point)):
        return made
    stored_one, expected = (f"{each.trial} with {point_text(each.point) or 'no point'}" for each in (kept, made))
    warn(
        f"{FILE_NAME}, {made.row}: the stored choice does not count: it is trial {stored_one}, expected {expected}; "
        "`harness run` chooses again from the records of the tuning trials"
    )
    return None


def of_records(row: Row, records: Mapping[str, TrialRecord]) -> Choice | None:
    """The choice that the records of a row's tuning trials give; None while some of them are missing."""
    return row.choose({trial: perplexity(record) for trial, record in records.items()})


def perplexity(record: TrialRecord) -> float | None:
    """The validation perplexity by which a tuning trial is compared; None if the trial failed."""
    return record.metrics["valid_ppl"] if record.status == "ok" else None


@dataclass(frozen=True, kw_only=True)
class Records:
    """What the results folder has of a suite's trials: read once by a command, and handed on.

    Args:
        stored: of each row that is tuned, the choice that is stored, or None.
        verified: all records that were read, by id; those that do not fit the suite, too.
        table: the records of the trials of the table, by id.
        tuning: the records of the tuning trials, by id.
    """

    suite: Suite
    runs: Path
    warn: Callable[[str], None]
    stored: tuple[Choice | None, ...] = ()
    verified: dict[str, TrialRecord] = field(default_factory=dict)
    table: dict[str, TrialRecord] = field(default_factory=dict)
    tuning: dict[str, TrialRecord] = field(default_factory=dict)

    @cached_property
    def found(self) -> dict[str, TrialRecord]:
        return {**self.tuning, **self.table}

    def having(self, made: Mapping[str, TrialRecord], tried: Collection[str]) -> "Records":
        """The records after the trials `tried` were run, with those they made. Rows that these tune choose again."""
        kept = {trial: record for trial, record in self.verified.items() if trial not in tried}
        return _completed(replace(self, verified={**kept, **made}), tried)


def read(
    suite: Suite, results: Path, warn: Callable[[str], None], verified: Mapping[str, TrialRecord] | None = None
) -> Records:
    """Read the records of a suite: those that verify and are of its trials; and the choices of its tuning.

    A stored choice counts, so that the trials of a table stay the same. A row without one has the choice that the
    records of its tuning trials give.

    Args:
        warn: called with a sentence for each record that does not count, and for each row whose records now give
            another choice than the stored one; and if the stored choices do not verify, or are not of the plan.
        verified: records of the suite's folder that are in hand, by id: they are not read again.
    """
    runs, before = store.runs_folder(results, suite.name), ()
    if suite.tune is not None:
        kept = readable(runs, warn)
        before = tuple(stored(kept, row, warn) for row in suite.tuned_rows)
    return _completed(Records(suite=suite, runs=runs, warn=warn, stored=before, verified=dict(verified or {})))


def keep(records: Records, rows: Collection[Row]) -> Records:
    """Store the choices of some rows where none is stored. Returns the records with them. Raises: StorageError."""
    keys = {row.key for row in rows}
    kept, made = [], []
    for row, was in zip(records.suite.tuned_rows, records.stored, strict=True):
        is_new = was is None and row.choice is not None and row.key in keys
        made += [row.choice] if is_new else []
        kept.append(row.choice if is_new else was)
    if made:
        save(records.runs, made)
    return replace(records, stored=tuple(kept))


def _completed(records: Records, tried: Collection[str] = ()) -> Records:
    """Fill in the trials of the table, and which records are of which trials."""
    suite, verified, tuning, before = records.suite, dict(records.verified), {}, list(records.stored)
    if suite.tune is not None:
        tuning = _of_trials(suite, suite.tuning_trials, records, verified)
        now = [of_records(row, tuning) for row in suite.tuned_rows]
        for index, (was, made) in enumerate(zip(before, now, strict=True)):
            if made is not None and not made.valid_ppl.keys().isdisjoint(tried):
                before[index] = None
            elif was is not None and made is not None and was.trial != made.trial:
                records.warn(_other(was, made, records.runs / FILE_NAME))
        suite = with_choices(suite, [was or made for was, made in zip(before, now, strict=True)])
    table = _of_trials(suite, suite.trials, records, verified)
    return replace(records, suite=suite, stored=tuple(before), verified=verified, table=table, tuning=tuning)


def _of_trials(
    suite: Suite, trials: tuple[TrialSpec, ...], records: Records, verified: dict[str, TrialRecord]
) -> dict[str, TrialRecord]:
    """The records of some trials. Those that are not in hand are read, and added to `verified`."""
    # again after each round: other commands, also on other machines, finish trials of the same suite meanwhile
    found, damaged = store.load_all(records.runs, [trial.id for trial in trials if trial.id not in verified])
    verified.update(found)
    fitting, misfits = of_suite(verified, suite, trials)
    for sentence in (*damaged, *misfits):
        records.warn(sentence)
    return fitting


def _other(before: Choice, now: Choice, place: Path) -> str:
    one, other = (point_text(each.point) or "no point" for each in (before, now))
    return (
        f"{before.row}: the stored choice is {one}, and the records of the tuning trials now give {other}; "
        f"the stored one is used; remove {place} to use the other one"
    )
