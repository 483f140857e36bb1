"""Files beside a record. Those of its weights: times, losses of the test tokens, diagnostics; and other records of its
trial, of other machines.

Like a record they are written atomically and verified when they are read. A file of other weights is of an earlier run
of the trial, and is not used.

    timing.json         times of the trained model, measured while no other trial ran
    test_nll.npz        the loss of each token of the test split with the best weights: an archive of numpy arrays, read
                        without pickles. It must give the test perplexity of the record
    diagnostics.json    what `harness diagnose` has computed for the trained weights
    replicates.json     other records of the trial (harness/records/replicates.py)
"""

import io
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from harness.errors import RecordError
from harness.machine.files import write_atomically
from harness.printable import printable
from harness.records import sealed
from harness.records.metrics import METRICS, MOST
from harness.records.plausible import fault, fault_of_date
from harness.records.record import Hash, TrialRecord
from harness.records.replicates import AGREEMENT, Replicates
from harness.records.store import folder, writing

SCHEMA = 1
ARRAYS = {"nll": np.float32, "count": np.int32, "offset": np.int32}
MOST_UNPACKED, LEAST_UNPACKED = 100, 2**26  # bytes of arrays: for each byte of their file, and in any case
LEAST_NATS = -1e-5  # of a token: 0 with room for rounding, because no probability is above 1
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar(Generic[Kept]):
    """A kind of file beside a record.

    Args:
        max_bytes: of a file; of token scores, of the arrays.
        again: what to do where it does not verify; `{}` is the name of the suite.
        parsed: what a file holds, given its content, the record and its place, for messages; None if it is of other
            weights. Raises RecordError when it is damaged, edited or of another schema, or does not fit the record.
    """

    file: str
    max_bytes: int
    again: str
    parsed: Callable[[bytes, TrialRecord, Path], Kept | None]

    def load(self, runs: Path, record: TrialRecord) -> Kept | None:
        """What lies beside a record; None if there is nothing, or only of other weights. Raises as `parsed`."""
        place = folder(runs, record.id) / self.file
        with sealed.remedied(self.again.format(runs.name)):
            content = sealed.read(place, self.max_bytes)
            return None if content is None else self.parsed(content, record, place)

    def load_all(self, runs: Path, found: dict[str, TrialRecord]) -> tuple[dict[str, Kept], list[str]]:
        """Trial id -> what lies beside its record, and a sentence for each file that does not verify."""
        return sealed.each(lambda trial: self.load(runs, found[trial]), found)


class Timing(BaseModel):
    """The times of one trial from one exclusive pass, which times models in turn, in rounds, on one machine.

    Args:
        weights_sha256: of the record's weights: the timing belongs to that record only.
        metrics: 'train_ms_per_batch', 'eval_ms_per_batch', 'inference_ms_per_batch' and their '..._iqr': medians and
            interquartile ranges over the batches of all rounds, by the names of harness.records.metrics.METRICS.
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenScores:
    """Each token of a test split as a target, in the order of the split.

    Shapes: all (N,), N tokens of the split.
    Args:
        nll: nats, float32; NaN where a token was not scored.
        count: how often the token occurs in the training split.
        offset: the number of tokens before it in the segment where it was scored, less one: 0 for the first target of
            a segment. Without carried state this is all its context. -1 where it was not scored.
    """

    nll: np.ndarray
    count: np.ndarray
    offset: np.ndarray

    @property
    def scored(self) -> np.ndarray:
        """(N,) True where a token was scored."""
        return ~np.isnan(self.nll)


class Diagnosis(BaseModel):
    """The result of one diagnostic of one trial, and what it depends on.

    Args:
        settings: those on which it depends, by name.
        code: SHA-256 of its code.
        refused: why it has no meaning for the head; '' where it has a result.
        content: the result as JSON; {} where it was refused.
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
    """The content of the file, which belongs to a record with these weights only."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: int = SCHEMA
    trial: str
    weights_sha256: str
    found: tuple[Diagnosis, ...]


def save_timing(timing: Timing, runs: Path) -> Path:
    """Write a timing beside its record. Raises StorageError."""
    place = folder(runs, timing.trial) / TIMING.file
    sealed.save(timing, place)
    return place


def save_token_scores(scores: TokenScores, weights_sha256: str, place: Path) -> None:
    """Raises StorageError."""
    content = io.BytesIO()
    arrays = {name: getattr(scores, name).astype(kind) for name, kind in ARRAYS.items()}
    np.savez_compressed(content, weights_sha256=np.array(weights_sha256), **arrays)
    write_atomically(place, content.getvalue())


def add_diagnosis(runs: Path, record: TrialRecord, made: Diagnosis) -> None:
    """Add a result to the file beside a record. It replaces that of the same diagnostic and settings.

    A file that is damaged or of other weights is replaced. Raises: StorageError.
    """
    with writing(runs, record.id):
        try:
            before = DIAGNOSES.load(runs, record) or ()
        except RecordError:
            before = ()
        kept = [each for each in before if not each.answers(made.diagnostic, made.settings)]
        content = Diagnoses(trial=record.id, weights_sha256=record.weights_sha256, found=(*kept, made))
        sealed.save(content, folder(runs, record.id) / DIAGNOSES.file)


def _timing(content: bytes, record: TrialRecord, place: Path) -> Timing | None:
    timing = sealed.parsed(content, Timing, place, schema=SCHEMA)
    if wrong := _fault(timing):
        raise RecordError(f"{place}: {wrong}; the timing does not count")
    return timing if (timing.trial, timing.weights_sha256) == (record.id, record.weights_sha256) else None


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


def _token_scores(content: bytes, record: TrialRecord, place: Path) -> TokenScores | None:
    try:
        arrays = _arrays(content)
    except Exception as cause:  # any exception of zipfile, zlib or numpy for a file of another kind
        reason = str(cause).partition("\n")[0]
        raise RecordError(
            f"{place}: cannot be read as the losses of the test tokens ({type(cause).__name__}: {reason})"
        ) from cause
    if str(arrays.pop("weights_sha256")) != record.weights_sha256:
        return None
    scores = TokenScores(**arrays)
    nll = scores.nll[scores.scored].astype(np.float64)
    least = LEAST_NATS - (0.0 if record.certificate is None else record.certificate.log_epsilon)
    if len(nll) and (nll.min() < least or scores.count.min() < 0 or scores.offset.min() < -1):
        raise RecordError(f"{place}: a token has a probability above 1, or a count or offset below 0")
    scored, ppl = (record.metrics.get(name, 0) for name in ("scored_test_tokens", "test_ppl"))
    if not (len(nll) == scored > 0 < ppl and math.isclose(nll.mean(), math.log(ppl), abs_tol=AGREEMENT)):
        raise RecordError(f"{place}: the scores do not add up to the record's test perplexity")
    return scores


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of the file, of the expected names, types and one length. No more than `max_bytes` are unpacked."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
    expected = [*ARRAYS, "weights_sha256"]
    if sorted(member.filename for member in members) != sorted(f"{name}.npy" for name in expected):
        raise ValueError(f"expected the arrays {', '.join(expected)}")
    unpacked = sum(member.file_size for member in members)
    if unpacked > TOKEN_NLL.max_bytes:
        raise ValueError(f"more than {TOKEN_NLL.max_bytes:,} bytes")
    if unpacked > LEAST_UNPACKED + MOST_UNPACKED * len(content):
        raise ValueError(f"it unpacks to more than {MOST_UNPACKED} times its size")
    with np.load(io.BytesIO(content), allow_pickle=False) as read:
        arrays = {name: read[name] for name in expected}
    shapes = {arrays[name].shape for name in ARRAYS}
    if len(shapes) != 1 or len(*shapes) != 1 or any(arrays[name].dtype != kind for name, kind in ARRAYS.items()):
        raise ValueError("expected three arrays of the same length, with the types float32, int32 and int32")
    return arrays


def _diagnoses(content: bytes, record: TrialRecord, place: Path) -> tuple[Diagnosis, ...] | None:
    kept = sealed.parsed(content, Diagnoses, place, schema=SCHEMA)
    for each in kept.found:
        if wrong := fault_of_date("taken", each.taken):
            raise RecordError(f"{place}: {wrong}; the diagnostics do not count")
    return kept.found if (kept.trial, kept.weights_sha256) == (record.id, record.weights_sha256) else None


def _replicates(content: bytes, record: TrialRecord, place: Path) -> tuple[TrialRecord, ...]:
    kept = sealed.parsed(content, Replicates, place, schema=SCHEMA)
    for each in kept.records:
        if each.id != record.id:
            raise RecordError(f"{place}: holds a record of trial {each.id}")
        if wrong := fault(each):
            raise RecordError(f"{place}: {wrong}; the replicates do not count")
    return kept.records


TIMING = Sidecar(
    file="timing.json", max_bytes=2**20, again="`harness run {} --timing` times the rows again", parsed=_timing
)
TOKEN_NLL = Sidecar(
    file="test_nll.npz",
    max_bytes=2 * 1024**3,  # 170 million tokens
    again="`harness run {} --force` trains again and writes them",
    parsed=_token_scores,
)
DIAGNOSES = Sidecar(
    file="diagnostics.json",
    max_bytes=64 * 1024**2,
    again="`harness diagnose {}` computes them again",
    parsed=_diagnoses,
)
REPLICATES = Sidecar(
    file="replicates.json",
    max_bytes=64 * 1024**2,
    again="remove the file, and import the records of other machines again",
    parsed=_replicates,
)
SIDECARS = {each.file: each for each in (TIMING, TOKEN_NLL, DIAGNOSES, REPLICATES)}
