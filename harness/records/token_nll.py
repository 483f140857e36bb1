"""The loss of each token of the test split with a trial's best weights: a compressed file beside the record.

The file is an archive of numpy arrays, read without pickles. It is used only with a record of the same weights, if
it gives the test perplexity of the record.
"""

import io
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.errors import RecordError
from harness.machine.files import write_atomically
from harness.records import sealed
from harness.records.record import TrialRecord
from harness.records.store import folder

FILE_NAME = "test_nll.npz"
MAX_BYTES = 2 * 1024**3  # of the arrays: a test split of 170 million tokens
ARRAYS = {"nll": np.float32, "count": np.int32, "offset": np.int32}
AGREEMENT = 1e-5  # relative, of perplexities: float32 rounds the nats of each token by about 1e-7
LEAST_NATS = -1e-5  # of a token: 0 with room for rounding, because no probability is above 1


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


def save(scores: TokenScores, weights_sha256: str, place: Path) -> None:
    """Write the file at `place`, atomically. Raises StorageError."""
    content = io.BytesIO()
    arrays = {name: getattr(scores, name).astype(kind) for name, kind in ARRAYS.items()}
    np.savez_compressed(content, weights_sha256=np.array(weights_sha256), **arrays)
    write_atomically(place, content.getvalue())


def load(runs: Path, record: TrialRecord) -> TokenScores | None:
    """The token scores beside a record; None if there are none, or only those of other weights, of an earlier run.

    Raises: RecordError when they are damaged, or do not give the record's perplexity.
    """
    place = folder(runs, record.id) / FILE_NAME
    content = sealed.read(place, MAX_BYTES)
    return None if content is None else parsed(content, record, place)


def parsed(content: bytes, record: TrialRecord, place: Path) -> TokenScores | None:
    """The token scores in the content of a file; `place` is for messages. Returns and raises as `load` does."""
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
    if len(nll) and (nll.min() < LEAST_NATS or scores.count.min() < 0 or scores.offset.min() < -1):
        raise RecordError(f"{place}: a token has a probability above 1, or a count or offset below 0")
    scored, ppl = (record.metrics.get(name, 0) for name in ("scored_test_tokens", "test_ppl"))
    if not (len(nll) == scored > 0 < ppl and math.isclose(nll.mean(), math.log(ppl), abs_tol=AGREEMENT)):
        raise RecordError(f"{place}: the scores do not add up to the record's test perplexity")
    return scores


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of the file, of the expected names, types and one length. No more than MAX_BYTES are unpacked."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
    expected = [*ARRAYS, "weights_sha256"]
    if sorted(member.filename for member in members) != sorted(f"{name}.npy" for name in expected):
        raise ValueError(f"expected the arrays {', '.join(expected)}")
    if sum(member.file_size for member in members) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES:,} bytes")
    with np.load(io.BytesIO(content), allow_pickle=False) as read:
        arrays = {name: read[name] for name in expected}
    shapes = {arrays[name].shape for name in ARRAYS}
    if len(shapes) != 1 or len(*shapes) != 1 or any(arrays[name].dtype != kind for name, kind in ARRAYS.items()):
        raise ValueError("expected three arrays of the same length, with the types float32, int32 and int32")
    return arrays
