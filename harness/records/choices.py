"""The points that tuning has chosen, stored beside the records: results/runs/<suite>/tuning.json.

The file has its own checksum. It has the choices of every version of the suite (of other budgets, by --set): a choice
belongs to a row if it was made of the row's tuning trials, and of no others.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from harness.errors import RecordError
from harness.plan.loaded_suite import Suite, first_stage, with_choices
from harness.plan.specs import canonical
from harness.plan.tuning import Choice, TunedRow, choose, point_text
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
        ok = {trial: ppl for trial, ppl in choice.valid_ppl.items() if ppl is not None}
        if choice.trial != min(ok, key=ok.get, default=None):
            raise RecordError(f"{place}: the choice of '{choice.row}' is not the lowest validation perplexity")
    return found.choices


def save(runs: Path, made: Iterable[Choice]) -> None:
    """Add choices to the file. Those of the same tuning trials are replaced, and so is a damaged file.

    Raises: StorageError.
    """
    kept = {frozenset(each.valid_ppl): each for each in (*readable(runs, lambda damage: None), *made)}
    sealed.save(Tuning(suite=runs.name, choices=tuple(kept.values())), runs / FILE_NAME)


def stored(found: Iterable[Choice], row: TunedRow, warn: Callable[[str], None]) -> Choice | None:
    """The choice that was made of a row's tuning trials; None if there is none.

    Args:
        warn: called with a sentence if the choice is not one of the row's points at these perplexities: it does not
            count then.
    """
    trials = {trial.id for trial in row.tuning_trials}
    kept = next((each for each in found if each.valid_ppl.keys() == trials), None)
    if kept is None:
        return None
    made = choose(row, kept.valid_ppl)
    if (kept.trial, canonical(kept.point)) == (made.trial, canonical(made.point)):
        return made
    stored_one, expected = (f"{each.trial} with {point_text(each.point) or 'no point'}" for each in (kept, made))
    warn(f"{FILE_NAME}, {made.row}: the stored choice does not count: it is trial {stored_one}, expected {expected}")
    return None


def of_records(row: TunedRow, records: dict[str, TrialRecord]) -> Choice | None:
    """The choice that the records of a row's tuning trials give; None while some of them are missing."""
    return choose(row, {trial: perplexity(record) for trial, record in records.items()})


def perplexity(record: TrialRecord) -> float | None:
    """The validation perplexity by which a tuning trial is compared; None if the trial failed."""
    return record.metrics["valid_ppl"] if record.status == "ok" else None


def tuning_records(suite: Suite, results: Path, warn: Callable[[str], None]) -> dict[str, TrialRecord]:
    """The records of the tuning trials of a suite, by id; {} without `tune`. `warn` is called as by `completed`."""
    if suite.tuning is None:
        return {}
    first = first_stage(suite)
    records, damaged = store.load_all(store.runs_folder(results, suite.name), [trial.id for trial in first.trials])
    records, misfits = of_suite(records, first)
    for sentence in (*damaged, *misfits):
        warn(sentence)
    return records


def completed(suite: Suite, results: Path, warn: Callable[[str], None]) -> Suite:
    """Return a suite with the trials of its table. Every command that has a results folder uses a suite like this.

    A stored choice counts, so that the trials of a table stay the same. A row without one has the choice that the
    records of its tuning trials give. A suite without `tune` is returned unchanged.

    Args:
        warn: called with a sentence for each record that does not count, and for each row whose records now give
            another choice than the stored one; and if the stored choices do not verify, or are not of the plan.
    """
    if suite.tuning is None:
        return suite
    runs, records = store.runs_folder(results, suite.name), tuning_records(suite, results, warn)
    kept, choices = readable(runs, warn), []
    for row in suite.tuning.rows:
        before, now = stored(kept, row, warn), of_records(row, records)
        if before is not None and now is not None and before.trial != now.trial:
            warn(_other(before, now, runs / FILE_NAME))
        choices.append(before or now)
    return with_choices(suite, choices)


def _other(before: Choice, now: Choice, place: Path) -> str:
    one, other = (point_text(each.point) or "no point" for each in (before, now))
    return (
        f"{before.row}: the stored choice is {one}, and the records of the tuning trials now give {other}; "
        f"the stored one is used; remove {place} to use the other one"
    )
