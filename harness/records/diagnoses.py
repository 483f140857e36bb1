"""diagnostics.json beside a record: what `harness diagnose` has computed for the trial's trained weights.

Like a record it is written atomically and verified when it is read. It counts only with the record of these weights.
"""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from harness.errors import RecordError
from harness.records import sealed
from harness.records.plausible import fault_of_date
from harness.records.record import Hash, TrialRecord
from harness.records.store import folder, writing

SCHEMA = 1
FILE_NAME = "diagnostics.json"
MAX_BYTES = 64 * 1024**2


class Diagnosis(BaseModel):
    """The result of one diagnostic of one trial, and what it depends on.

    Args:
        diagnostic: its name.
        settings: those on which it depends, by name.
        code: SHA-256 of its code.
        refused: why it has no meaning for the head; '' where it has a result.
        content: the result as JSON; {} where it was refused.
        seconds: how long it took.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    diagnostic: Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,40}$")]
    settings: dict[str, int | float | str]
    code: Hash
    refused: str = ""
    content: dict[str, JsonValue]
    device: str
    threads: int
    torch: str
    harness: str
    commit: str
    taken: str
    seconds: Annotated[float, Field(ge=0)]

    def answers(self, diagnostic: str, settings: dict[str, int | float | str]) -> bool:
        """Whether it is of a diagnostic with these settings, whatever the code was."""
        return (self.diagnostic, self.settings) == (diagnostic, settings)


class Diagnoses(BaseModel):
    """The content of the file.

    Args:
        trial: the id.
        weights_sha256: of the record's weights: the results belong to that record only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: int = SCHEMA
    trial: str
    weights_sha256: str
    found: tuple[Diagnosis, ...]


def load(runs: Path, record: TrialRecord) -> tuple[Diagnosis, ...]:
    """The results beside a record; () if there are none, or only those of other weights.

    Raises: RecordError when the file is damaged, edited or of another schema.
    """
    place = folder(runs, record.id) / FILE_NAME
    content = sealed.read(place, MAX_BYTES)
    kept = None if content is None else parsed(content, record, place)
    return () if kept is None else kept.found


def parsed(content: bytes, record: TrialRecord, place: Path) -> Diagnoses | None:
    """The results in the content of a file; `place` is for messages. None if they are of other weights.

    Raises: RecordError as `load` does.
    """
    kept = sealed.parsed(content, Diagnoses, place, schema=SCHEMA)
    for each in kept.found:
        if wrong := fault_of_date("taken", each.taken):
            raise RecordError(f"{place}: {wrong}; the diagnostics do not count")
    return kept if (kept.trial, kept.weights_sha256) == (record.id, record.weights_sha256) else None


def add(runs: Path, record: TrialRecord, made: Diagnosis) -> None:
    """Add a result to the file beside a record. It replaces that of the same diagnostic and settings.

    A file that is damaged or of other weights is replaced. Raises: StorageError.
    """
    with writing(runs, record.id):
        try:
            before = load(runs, record)
        except RecordError:
            before = ()
        kept = [each for each in before if not each.answers(made.diagnostic, made.settings)]
        content = Diagnoses(trial=record.id, weights_sha256=record.weights_sha256, found=(*kept, made))
        sealed.save(content, folder(runs, record.id) / FILE_NAME)
