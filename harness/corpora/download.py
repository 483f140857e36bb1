"""Files with a pinned SHA-256: verified if they exist, else downloaded by pooch, or copied out of a pinned zip archive.

Errors are one sentence. An archive is opened only after its own hash was verified, so it holds what its author put in.
"""

import hashlib
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pooch
import requests
import urllib3

from harness.errors import CorpusError
from harness.machine.files import atomically

DEFAULT_DATA = Path(pooch.os_cache("output-head-harness"))
MAX_BYTES = 2 * 1024**3
STALL_SECONDS = 30.0  # without a byte
GRACE_SECONDS, MIN_BYTES_PER_SECOND = 60.0, 1_000


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file of a published corpus.

    Args:
        path: its path relative to the data folder.
        url: the address for the download; for a file in an archive, its name within the archive.
        sha256: its SHA-256.
        archive: the zip archive that contains it, which is pinned, too, and is kept.
    """

    path: str
    url: str
    sha256: str
    archive: "PinnedFile | None" = None

    @property
    def source(self) -> str:
        """The address of the file, for messages."""
        return self.url if self.archive is None else f"{self.archive.source} ({self.url} in it)"


def fetch(file: PinnedFile, data: Path) -> Path:
    """Return the path of a verified file. Download it if it is missing, with one retry if the download was wrong.

    Raises: CorpusError when an existing file has another content (the file is not changed), or when the download fails
    or has another content (it is removed).
    """
    place = data / file.path
    if place.exists():
        return verified(file, data)
    try:
        if file.archive is None:
            _download(file, place)
        else:
            copy_member(fetch(file.archive, data), file.url, place, sha256=file.sha256)
    except (requests.RequestException, ValueError, OSError) as cause:
        raise CorpusError(
            f"{place.name} is not in {place.parent} and could not be downloaded ({_reason(cause)}); get it from "
            f"{file.source} and put it there, or name the folder that holds {file.path} with --data or HARNESS_DATA"
        ) from cause
    return place


def verified(file: PinnedFile, data: Path) -> Path:
    """Return the path of a file that must exist. Raises CorpusError when it is missing or has another content."""
    place = data / file.path
    if not place.is_file():
        raise CorpusError(f"{place.name} is not in {place.parent}: name the folder that has it by --data")
    found = pooch.file_hash(str(place), alg="sha256")
    if found != file.sha256:
        raise CorpusError(
            f"{place} has another content: expected sha256 {file.sha256}, found {found}; remove it, and get it from "
            f"{file.source}"
        )
    return place


def copy_member(archive: Path, name: str, place: Path, *, sha256: str) -> None:
    """Copy one file out of a verified zip archive. `place` gets its complete content or is not changed.

    Raises: ValueError when the file has another SHA-256.
    """
    digest = hashlib.sha256()
    with zipfile.ZipFile(archive) as opened, opened.open(name) as source, atomically(place) as target:
        while block := source.read(2**20):
            target.write(block)
            digest.update(block)
        if digest.hexdigest() != sha256:
            raise ValueError(f"'{name}' of the archive has another sha256 than the pinned one")


def _download(file: PinnedFile, place: Path) -> None:
    """Download a file. Pooch writes a temporary file, compares the hash, renames it, and retries once."""
    place.parent.mkdir(parents=True, exist_ok=True)
    pinned = pooch.Pooch(
        path=place.parent,
        base_url="",
        registry={place.name: f"sha256:{file.sha256}"},
        urls={place.name: file.url},
        retry_if_failed=1,
    )
    pinned.fetch(place.name, downloader=_stream)


def _stream(url: str, place: str, _: pooch.Pooch) -> None:
    """Write what a server sends, with a limit on the size and a lower limit on the speed.

    Pooch's own downloader has no limit on the time for which a very slow server sends a block.
    """
    started, received = time.monotonic(), 0
    with requests.get(url, stream=True, timeout=STALL_SECONDS) as response, open(place, "wb") as file:
        response.raise_for_status()
        try:
            while piece := response.raw.read1(2**16, decode_content=True):
                received += file.write(piece)
                seconds = time.monotonic() - started
                if seconds > GRACE_SECONDS and received < MIN_BYTES_PER_SECOND * seconds:
                    raise requests.Timeout(f"{received:,} bytes in {seconds:.0f} s")
                if received > MAX_BYTES:
                    raise requests.RequestException(f"the file has more than {MAX_BYTES:,} bytes")
        except urllib3.exceptions.TimeoutError as cause:
            raise requests.Timeout(f"no data received for {STALL_SECONDS:g} s") from cause
        except urllib3.exceptions.HTTPError as cause:
            raise requests.exceptions.ChunkedEncodingError(cause) from cause


def _reason(cause: Exception) -> str:
    if isinstance(cause, requests.ConnectionError):
        return "no connection"
    if isinstance(cause, requests.Timeout):
        return f"too slow: {cause}"
    if isinstance(cause, requests.exceptions.ChunkedEncodingError):
        return "the transfer was interrupted"
    if isinstance(cause, ValueError) and "hash" in str(cause):
        return "the downloaded file has another sha256 than the pinned one"
    return f"{type(cause).__name__}: {cause}".splitlines()[0]
