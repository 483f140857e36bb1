"""Pinned files: present with the right SHA-256, or downloaded by pooch, or one clear sentence."""

from dataclasses import dataclass
from pathlib import Path

import pooch
import requests

from harness.errors import CorpusError

DEFAULT_DATA = Path(pooch.os_cache("output-head-harness"))


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file of a published corpus: its place below the data folder, where it is downloaded from, its SHA-256."""

    path: str
    url: str
    sha256: str


def fetch(file: PinnedFile, data: Path) -> Path:
    """The verified file's path; downloads it when it is absent.

    Raises: CorpusError when a present file has another content (it is left as it is), or the download fails or brings
    another content (nothing is kept of it).
    """
    place = data / file.path
    if place.exists():
        return verified(file, data)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        downloader = pooch.HTTPDownloader(timeout=30)
        pooch.retrieve(file.url, f"sha256:{file.sha256}", fname=place.name, path=place.parent, downloader=downloader)
    except (requests.RequestException, ValueError, OSError) as cause:
        raise CorpusError(
            f"{place.name} is not in {place.parent} and could not be downloaded ({_reason(cause)}); get it from "
            f"{file.url} and put it there, or name the folder that holds {file.path} with --data or HARNESS_DATA"
        ) from cause
    return place


def verified(file: PinnedFile, data: Path) -> Path:
    """The path of a file that must be there. Raises CorpusError when it is absent or has another content."""
    place = data / file.path
    if not place.is_file():
        raise CorpusError(f"{place.name} is not in {place.parent}")
    found = pooch.file_hash(str(place), alg="sha256")
    if found != file.sha256:
        raise CorpusError(f"{place} has another content: expected sha256 {file.sha256}, found {found}")
    return place


def _reason(cause: Exception) -> str:
    if isinstance(cause, requests.ConnectionError):
        return "no connection"
    if isinstance(cause, ValueError) and "hash" in str(cause):
        return "the file that came has another sha256 than the pinned one"
    return f"{type(cause).__name__}: {cause}".splitlines()[0]
