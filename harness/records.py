"""TrialRecord: the one thing that makes a trial finished. Written whole or not at all, and verified when read.

A record lives at results/runs/<suite>/<trial id>/record.json. `sha256` is taken over the canonical JSON of everything
else in it; a record that does not verify does not count.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field

from harness import sealed
from harness.certificates import Certificate
from harness.errors import RecordError, StorageError
from harness.files import remove_stale
from harness.fingerprints import Fingerprints
from harness.kernels.products import Route
from harness.plan.specs import TrialSpec
from harness.plausible import fault

SCHEMA = 1
FILE_NAME = "record.json"
LOCKS = ".locks"
CHECKPOINTS = "checkpoint-*.pt"  # in the folder of a trial that is under way
CONTRADICTED = "the record says ok, and its certificate says otherwise"
MAX_BYTES = 16 * 1024**2  # 100,000 epochs; what is larger is no record
Status = Literal["ok", "diverged", "oom", "error", "timeout", "invalid"]  # invalid: its certificate failed

# Every metric a record may hold -> its name in MLflow, None where a chart of it would show nothing. Perplexities are of
# the best epoch by validation unless 'last'.
METRICS = {
    "valid_ppl": "valid/ppl",
    "test_ppl": "test/ppl",
    "last_valid_ppl": "valid/ppl_last",
    "last_test_ppl": "test/ppl_last",
    "test_ppl_standard": "test/ppl_standard",  # standard counting: <sos> scored but not divided by
    "start_valid_ppl": "valid/ppl_start",  # before the first update
    "test_ppl_word": "test/ppl_word",  # the same summed loss, divided by the words of the text, ...
    "test_ppl_byte": "test/ppl_byte",  # ... by its bytes in UTF-8, ...
    "test_bits_per_character": "test/bits_per_character",  # ... by its characters, in bits
    "unigram_test_ppl": "test/ppl_unigram",  # add-one unigram of the training split, same tokens
    "source_test_ppl": "test/ppl_source",  # of the process that made the text, where it is known
    "params_total": "params/total",
    "params_head": "params/head",
    "train_ms_per_batch": "time/train_ms_per_batch",
    "train_ms_per_batch_iqr": "time/train_ms_per_batch_iqr",
    "eval_ms_per_batch": "time/eval_ms_per_batch",
    "eval_ms_per_batch_iqr": "time/eval_ms_per_batch_iqr",
    "inference_ms_per_batch": "time/inference_ms_per_batch",  # forward with loss, of measure.inference_batch segments
    "inference_ms_per_batch_iqr": "time/inference_ms_per_batch_iqr",
    "inference_batch": None,  # how many segments that is
    "train_minutes": "time/train_minutes",
    "peak_memory_mib": "memory/peak_mib",
    "best_epoch": "train/best_epoch",
    "scored_test_tokens": None,
    "context_tokens": None,  # tokens a segment
    "state_carried": None,  # 1: the backbone's state goes on from segment to segment
}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CurvePoint(_Frozen):
    """One epoch, or what a setting like `epochs: 0.4` leaves of the last: `epoch` is how many are done. `train_loss`:
    mean of what was minimised, per token; `lr`: the rate it was trained with; `seconds`: its training time.
    """

    epoch: float
    train_loss: float
    valid_ppl: Annotated[float, Field(gt=0)]
    lr: float
    seconds: float


class Environment(_Frozen):
    """Where and by what a trial was run. What has a default is younger than the first records."""

    device: str
    threads: int
    load_average: float
    shared: bool  # other trials could run at the same time, so times are not exclusive
    python: str
    torch: str
    harness: str
    commit: str
    executor: str
    started: str
    finished: str
    matmul_route: Route | None = None  # of float32 products on the CPU; None on a GPU, and where it was not noted
    cuda_graph: bool = False  # the training steps were replays of one CUDA graph
    sessions: int = 1  # processes that trained it, one after the other, each from the checkpoint of the one before
    retries: int = (
        0  # further attempts by the run that finished it: after a worker's death, or alone for want of memory
    )
    changed: tuple[str, ...] = ()  # what was different in earlier sessions: 'commit abc until epoch 3'
    switched_off: tuple[str, ...] = ()  # a sentence for each part for GPUs that failed its proof on this machine


class Contents(_Frozen):
    """What a trial read, by hash or by a place that never changes, as its id has it: the text, and the weights that the
    backbone started from, None for random ones.
    """

    corpus: str
    backbone: str | None = None


class TrialRecord(_Frozen):
    """A finished trial: what it was, how it ended, what was measured. Raw numbers; the units are in their names."""

    schema_version: int = SCHEMA
    suite: str
    spec: TrialSpec
    status: Status
    metrics: dict[str, float]
    curve: tuple[CurvePoint, ...]
    environment: Environment
    message: str = ""
    weights_sha256: str | None = None
    contents: Contents | None = None  # None in the first records, and where the plan did not say
    certificate: Certificate | None = None  # None in older records, and where the trial did not come so far
    code: Fingerprints | None = None  # None in records from before code was noted

    @property
    def id(self) -> str:
        """The trial's id."""
        return self.spec.id

    @property
    def uncertified(self) -> bool:
        """Whether it is ok without a certificate: it was made before there were any."""
        return self.status == "ok" and self.certificate is None


def runs_folder(results: Path, suite: str) -> Path:
    """The absolute folder of a suite's records."""
    return results.resolve() / "runs" / suite


def folder(runs: Path, trial_id: str) -> Path:
    """A trial's own folder below the suite's: record, log, weights."""
    return runs / trial_id


def save(record: TrialRecord, runs: Path) -> Path:
    """Write a record atomically, with its checksum; returns its path."""
    place = folder(runs, record.id) / FILE_NAME
    sealed.save(record, place)
    return place


def digest(record: TrialRecord) -> str:
    """SHA-256 of everything in a record: its checksum, and what tells a rerun from the same record."""
    return sealed.digest(record)


def load(runs: Path, trial_id: str) -> TrialRecord | None:
    """A verified record as it counts, or None when there is none.

    Raises: RecordError when there is one, and it is torn, edited, of another schema or of another trial, or says what
        no trial can have measured.
    """
    place = folder(runs, trial_id) / FILE_NAME
    content = sealed.read(place, MAX_BYTES)
    return None if content is None else counted(parsed(content, trial_id, place))


def counted(record: TrialRecord) -> TrialRecord:
    """A record as it counts: one that says ok, with a certificate that breaks a rule, is invalid. A trial does not end
    so: somebody edited the record, or the limits were others then.
    """
    fault = record.certificate.fault if record.status == "ok" and record.certificate is not None else None
    if fault is None:
        return record
    return record.model_copy(update={"status": "invalid", "message": f"{CONTRADICTED}: {fault}"})


def measured(record: TrialRecord) -> TrialRecord:
    """A new record, before it is saved: what is ok and would not count when it is read, as with a perplexity below 1,
    is invalid. Otherwise its trial would be trained again by every run.
    """
    wrong = fault(record, METRICS) if record.status == "ok" else ""
    return record.model_copy(update={"status": "invalid", "message": wrong}) if wrong else record


def parsed(content: bytes, trial_id: str, place: Path) -> TrialRecord:
    """The verified record of a file's content; `place` is for messages. Raises RecordError as `load` does."""
    record = sealed.parsed(content, TrialRecord, place, schema=SCHEMA)
    if record.id != trial_id:
        raise RecordError(f"{place}: holds the record of trial {record.id}")
    if wrong := fault(record, METRICS):
        raise RecordError(f"{place}: {wrong}; the record does not count")
    return record


def agree(one: TrialRecord, other: TrialRecord) -> bool:
    """Whether two records of a trial have the same results: weights, and every metric of both but times and memory."""
    shared = [name for name in one.metrics if name in other.metrics and not _is_cost(name)]
    same = all(one.metrics[name] == other.metrics[name] for name in shared)
    return same and (one.status, one.weights_sha256) == (other.status, other.weights_sha256)


def contradicting(found: Iterable[TrialRecord]) -> tuple[TrialRecord, TrialRecord] | None:
    """Of records of one trial an ok one, and another that has other results: ok, too, or invalid. None where there are
    no such two. A trial that failed in another way has no results.
    """
    judged = [record for record in found if record.status in ("ok", "invalid")]
    first = next((record for record in judged if record.status == "ok"), None)
    return next(((first, other) for other in judged if first is not None and not agree(first, other)), None)


def _is_cost(metric: str) -> bool:
    return (METRICS[metric] or "").startswith(("time/", "memory/"))


def load_all(runs: Path, trial_ids: list[str]) -> tuple[dict[str, TrialRecord], list[str]]:
    """The verified records among `trial_ids`, and a sentence for each that does not verify."""
    found, warnings = {}, []
    for trial_id in trial_ids:
        try:
            record = load(runs, trial_id)
        except RecordError as error:
            warnings.append(str(error))
            continue
        if record is not None:
            found[trial_id] = record
            if record.message.startswith(CONTRADICTED):
                warnings.append(f"{folder(runs, trial_id) / FILE_NAME}: {record.message}; it counts as invalid")
    return found, warnings


def digests(runs: Path, trial_ids: list[str]) -> dict[str, str]:
    """Trial id -> digest of its record, of those that verify."""
    return {trial_id: digest(record) for trial_id, record in load_all(runs, trial_ids)[0].items()}


def pending(
    trials: tuple[TrialSpec, ...], found: dict[str, TrialRecord], *, retry_failed: bool, force: bool
) -> list[TrialSpec]:
    """The trials to run: those without a verified record; failed ones, or all, where that is asked for."""
    return [
        trial for trial in trials if force or trial.id not in found or (retry_failed and found[trial.id].status != "ok")
    ]


def interrupted(runs: Path, trial_ids: Iterable[str]) -> set[str]:
    """The trials that have a checkpoint: where they have no record, the next run goes on with them from there."""
    return {trial_id for trial_id in trial_ids if any(folder(runs, trial_id).glob(CHECKPOINTS))}


def set_aside(runs: Path, trial_id: str) -> None:
    """Take a record out of the way of a new run of its trial; kept as record.previous.json, or as record.bad when it
    does not verify.
    """
    place = folder(runs, trial_id) / FILE_NAME
    try:
        found = load(runs, trial_id)
    except RecordError:
        place.replace(place.with_name("record.bad"))
        return
    if found is not None:
        previous = place.with_name("record.previous.json")
        if found.status == "ok" or not previous.exists():  # one that was ok outlives those that failed
            place.replace(previous)
        else:
            place.unlink()


@contextmanager
def writing(runs: Path, trial_id: str, *, wait: float = -1) -> Iterator[None]:
    """The right to write to a trial's folder, which one process has at a time; waits for it, for so many seconds where
    that is not negative. It ends with the process, however that ends. Raises StorageError where it cannot be had.
    """
    place = runs / LOCKS / f"{trial_id}.lock"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place)
        lock.acquire(timeout=wait)
    except OSError as cause:
        raise StorageError(f"{place} cannot be locked ({cause.strerror or cause})") from cause
    try:
        remove_stale(folder(runs, trial_id))
        yield
    finally:
        lock.release()
