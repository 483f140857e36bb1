"""The file of a submission: a zip archive of at most three members, which are not compressed.

    card.yaml    the card (harness/submissions/card.py)
    head.py      the source of the head, if it is not of the harness
    records.zip  what `harness export` writes of its trials, those of its tuning too

Nothing in a file is trusted when it is read. Its size and its index are checked before zipfile reads them. The members
are written to a new folder under fixed names, and no name in the file is used as a path.
"""

import hashlib
import io
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from harness.errors import RecordError, SuiteError
from harness.extensions import needed
from harness.machine.files import read_bounded, write_atomically
from harness.plan.reader import value_of
from harness.printable import printable
from harness.submissions.card import FullCard, read_card

CARD, SOURCE, RECORDS = "card.yaml", "head.py", "records.zip"
MOST = {CARD: 64 * 1024, SOURCE: 256 * 1024, RECORDS: 96 * 1024**2}  # bytes of each member
MAX_BYTES = 100 * 10**6  # of the file; the usual forges take no larger one
MAX_INDEX = 1024  # bytes of the archive's index: three entries have some 200
HEAD_NAME = "[a-z][a-z0-9_]{0,40}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A file that was read.

    Args:
        digest: the SHA-256 of the file.
        folder: where its records lie, and its source as heads/<name>.py.
        source: the source of the head; None for a head of the harness.
    """

    place: Path
    digest: bytes
    folder: Path
    card: FullCard
    head_name: str
    source: str | None

    @property
    def records(self) -> Path:
        return self.folder / RECORDS


def write(place: Path, parts: dict[str, bytes]) -> None:
    """Write the file of a submission. The same parts give the same bytes. Raises StorageError."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name in MOST:
            if name in parts:
                archive.writestr(zipfile.ZipInfo(name), parts[name])
    write_atomically(place, content.getvalue())


def unpacked(place: Path, folder: Path) -> Submission:
    """Read a file, and write its parts into a new folder.

    Raises: RecordError with the reason when it is no submission.
    """
    try:
        content = read_bounded(place, MAX_BYTES)
        parts = _parts(place)
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError) as cause:
        reason = getattr(cause, "strerror", None) or cause
        raise RecordError(
            f"{place} is no submission ({printable(str(reason))}); `harness submit` writes one"
        ) from cause
    for name in (CARD, RECORDS):
        (folder / name).write_bytes(parts[name])
    try:
        card = read_card(folder / CARD, FullCard)
    except SuiteError as fault:
        said = "; ".join(fault.problems).replace(str(folder / CARD), CARD)
        raise RecordError(f"{place} is no submission ({said})") from None
    (name, _), source = head_of(card.head), None
    if SOURCE in parts:
        try:
            source = parts[SOURCE].decode("utf-8")
        except UnicodeDecodeError:
            raise RecordError(f"{place}: {SOURCE} is no UTF-8 text; save it as UTF-8") from None
        (folder / "heads").mkdir()
        (folder / "heads" / f"{name}.py").write_bytes(parts[SOURCE])
    digest = hashlib.sha256(content).digest()
    return Submission(place=place, digest=digest, folder=folder, card=card, head_name=name, source=source)


def head_of(spec: str) -> tuple[str, dict]:
    """The name and the parameters in an entry of `heads`: 'mine', {'k': 3} of '{mine: {k: 3}}'. Raises RecordError for
    anything else.
    """
    try:
        value = value_of(spec)
    except (ValueError, SuiteError):
        value = None
    ((name, params),) = value.items() if isinstance(value, dict) and len(value) == 1 else [(value, None)]
    if not isinstance(name, str) or not re.fullmatch(HEAD_NAME, name):
        shown = printable(spec[:80])
        raise RecordError(
            f"'{shown}' is no head: expected a name, or one name with its parameters: '{{mine: {{k: 3}}}}'"
        )
    return name, params or {}


def _parts(place: Path) -> dict[str, bytes]:
    """The members, by name. Raises what `unpacked` turns into a sentence."""
    found = {}
    with place.open("rb") as file:
        needed("harness.exchange.bundle:check_end", "a submission")(file, MAX_INDEX)
        with zipfile.ZipFile(file) as archive:
            for about in archive.infolist():
                name = about.filename
                if name not in MOST or name in found:
                    raise ValueError(f"'{name[:80]}' does not belong into it, or is in it twice")
                if about.compress_type != zipfile.ZIP_STORED or about.file_size != about.compress_size:
                    raise ValueError(f"{name} is compressed")
                if about.file_size > MOST[name]:
                    raise ValueError(f"{name} has more than {MOST[name]:,} bytes")
                found[name] = archive.read(name)
    for name in (CARD, RECORDS):
        if name not in found:
            raise ValueError(f"it has no {name}")
    return found
