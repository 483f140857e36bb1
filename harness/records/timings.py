"""timing.json beside a record: times of the trained model, measured while no other trial ran.

Like a record it is written atomically and verified when it is read. A timing without its record is not used.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from harness.errors import RecordError
from harness.printable import printable
from harness.records import sealed
from harness.records.metrics import METRICS, MOST
from harness.records.plausible import fault_of_date
from harness.records.record import TrialRecord
from harness.records.store import folder

SCHEMA = 1
FILE_NAME = "timing.json"
MAX_BYTES = 1024**2


class Timing(BaseModel):
    """The times of one trial from one exclusive pass, which times models in turn, in rounds, on one machine.

    Args:
        trial: the id.
        weights_sha256: of the record's weights: the timing belongs to that record only.
        metrics: 'train_ms_per_batch', 'eval_ms_per_batch', 'inference_ms_per_batch' and their '..._iqr': medians and
            interquartile ranges over the batches of all rounds, by the names of harness.records.metrics.METRICS.
        batches: timed batches of training behind the median.
        rounds: how many times the pass went through all its models.
        pass_id: of the pass; timings of one pass can be compared. Its key in the file is 'passed'.
        busy: processor cores that other work used just before the pass; None where that is not known.
        shared: other work was known or observed to run, so the times are not exclusive.
        initial: measured with the initial weights of the model, because the trained ones were missing or damaged.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True, serialize_by_alias=True
    )

    schema_version: int = SCHEMA
    trial: str
    weights_sha256: str
    metrics: dict[str, float]
    batches: int
    rounds: int
    pass_id: str = Field(alias="passed")
    device: str
    threads: int
    torch: str
    commit: str
    taken: str
    busy: float | None
    shared: bool
    initial: bool = False


def save(timing: Timing, runs: Path) -> Path:
    """Write a timing beside its record; returns its path. Raises StorageError."""
    place = folder(runs, timing.trial) / FILE_NAME
    sealed.save(timing, place)
    return place


def load(runs: Path, record: TrialRecord) -> Timing | None:
    """A record's timing; None if it has none, or only one of other weights.

    Raises: RecordError when it is damaged, edited or of another schema.
    """
    place = folder(runs, record.id) / FILE_NAME
    content = sealed.read(place, MAX_BYTES)
    return None if content is None else parsed(content, record, place)


def parsed(content: bytes, record: TrialRecord, place: Path) -> Timing | None:
    """A record's timing from the content of a file; `place` is for messages. Returns and raises as `load` does."""
    timing = sealed.parsed(content, Timing, place, schema=SCHEMA)
    if wrong := _fault(timing):
        raise RecordError(f"{place}: {wrong}; the timing does not count")
    return timing if (timing.trial, timing.weights_sha256) == (record.id, record.weights_sha256) else None


def load_all(runs: Path, found: dict[str, TrialRecord]) -> tuple[dict[str, Timing], list[str]]:
    """Trial id -> timing, and a sentence for each timing that does not verify."""
    timings, warnings = {}, []
    for trial_id, record in found.items():
        try:
            timing = load(runs, record)
        except RecordError as error:
            warnings.append(str(error))
            continue
        if timing is not None:
            timings[trial_id] = timing
    return timings, warnings


def _fault(timing: Timing) -> str:
    """What is wrong with a timing; '' if nothing is."""
    for name, value in timing.metrics.items():
        if name not in METRICS or not METRICS[name.removesuffix("_iqr")].timed:
            return f"'{printable(name[:40])}' is no time of a batch"
        if not 0 <= value <= MOST:
            return f"{name} is {value:g}, expected 0 to {MOST:g}"
    for name, low in {"batches": 0, "rounds": 0, "threads": 1, "busy": 0}.items():
        value = getattr(timing, name)
        if value is not None and not low <= value <= MOST:
            return f"{name} is {str(value)[:20]}, expected {low} to {MOST:g}"
    return fault_of_date("taken", timing.taken)
