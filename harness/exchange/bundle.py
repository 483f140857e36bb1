"""The file format of `harness export`: a zip archive, read member by member and never unpacked to disk.

    manifest.json                        the schema, and the version of the harness that wrote the file
    <suite>/<trial id>/record.json       the same bytes as in the results folder
    <suite>/<trial id>/timing.json       the same, if the trial has this file
    <suite>/<trial id>/test_nll.npz      the same, if the trial has this file
    <suite>/<trial id>/diagnostics.json  the same, if the trial has this file
    <suite>/<trial id>/replicates.json   the same, if the trial has this file
    <suite>/tuning.json                  the points that tuning has chosen, of a suite with `tune`

Nothing in a file is trusted when it is read. The size of the archive's index is checked before the index is read. Each
name must be one of those above, each size within its limit. Names are never used as paths: the folder of a trial is
made of a checked suite name and a checked id. A member's content has zip's checksum and, but for the scores of tokens,
the one in it. Manifests of schema 1 also list the members; the list is not read.
"""

import json
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import RecordError
from harness.machine.files import opened_bounded
from harness.plan.specs import SUITE_NAME, TRIAL_ID
from harness.printable import printable
from harness.records import choices, sealed, store
from harness.records.record import TrialRecord
from harness.records.sidecars import SIDECARS, TOKEN_NLL

SCHEMA = 2
READ = (1, 2)  # the schemas that this version reads
MANIFEST = "manifest.json"
AGAIN = "export the records again where they were made"  # what to do where a file does not verify
MAX_MANIFEST = 32 * 1024**2
# A larger archive, or one with more members, needs the 64-bit form of zip, which is neither written nor read.
MAX_BYTES = 2**31 - 1
MAX_MEMBERS = 2**16 - 1
MOST_UNPACKED, LEAST_UNPACKED = 100, 2**20  # bytes: for each of the archive, and in any case; exports have up to 5
MAX_INDEX = 200 * MAX_MEMBERS  # bytes: for each member its name and 46 more
FILES = {store.FILE_NAME: store.MAX_BYTES, **{each.file: each.max_bytes for each in SIDECARS.values()}}
MEMBER = re.compile(
    f"(?P<suite>{SUITE_NAME[1:-1]})/(?:(?P<id>{TRIAL_ID[1:-1]})/(?P<file>{'|'.join(map(re.escape, FILES))})"
    f"|{re.escape(choices.FILE_NAME)})"
)
_END = struct.Struct("<4s4H2LH")  # the last bytes of a zip archive without a comment
_LOCATOR = 20  # bytes before them in the 64-bit form
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError)


class Manifest(BaseModel):
    model_config = ConfigDict(frozen=True)

    kind: Literal["records of output-head-harness"] = "records of output-head-harness"
    schema_version: int = SCHEMA
    harness: str


@dataclass(frozen=True)
class BundledTrial:
    """A trial and its files in the archive: name -> bytes."""

    suite: str
    id: str
    files: dict[str, int] = field(default_factory=dict)

    def path(self, name: str) -> str:
        """The name of a file of this trial in the archive."""
        return f"{self.suite}/{self.id}/{name}"


@dataclass(frozen=True)
class Files:
    """The files of one trial, in its folder or in an archive.

    Args:
        place: <suite>/<trial id>; in an archive it is for messages only.
        content: the content of a file by its name; None if there is none. Raises RecordError.
        again: what to do where a file does not verify.
    """

    place: Path
    content: Callable[[str], bytes | None]
    again: str = AGAIN

    @classmethod
    def in_folder(cls, folder: Path) -> "Files":
        again = f"`harness run {folder.parent.name} --force` trains the trial again"
        return cls(folder, lambda name: sealed.read(folder / name, FILES[name]), again)

    @cached_property
    def record(self) -> TrialRecord:
        """The record. Raises RecordError when there is none, or none that verifies and is of this suite and trial."""
        place = self.place / store.FILE_NAME
        if (content := self.content(store.FILE_NAME)) is None:
            raise RecordError(f"{self.place} has no {store.FILE_NAME}; {self.again}")
        with sealed.remedied(self.again):
            record = store.parsed(content, self.place.name, place)
        if record.suite != self.place.parent.name:
            raise RecordError(f"{place}: holds a record of the suite '{record.suite}'; {self.again}")
        return store.counted(record)

    def beside(self, name: str) -> bytes | None:
        """The content of a file beside the record; None if there is none. Raises RecordError for one that does not
        verify or does not belong to the record.
        """
        content, place = self.content(name), self.place / name
        with sealed.remedied(self.again):
            if content is not None and SIDECARS[name].parsed(content, self.record, place) is None:
                of = f"another training of trial {self.record.id} than the record does"
                raise RecordError(f"{place}: belongs to {of}")
        return content


@dataclass(frozen=True, slots=True)
class Bundle:
    """An open archive of records, whose members have names and sizes of such an archive.

    Args:
        tuned: the suites of which it has choices of tuning.
    """

    place: Path
    archive: zipfile.ZipFile
    trials: tuple[BundledTrial, ...]
    tuned: tuple[str, ...]

    def content(self, path: str) -> bytes:
        """Read a member. Raises RecordError when it is damaged."""
        with _refused(self.place):
            return _read(self.archive, path)

    def files(self, trial: BundledTrial) -> Files:

        def content(name: str) -> bytes | None:
            return self.content(trial.path(name)) if name in trial.files else None

        return Files(self.place / trial.suite / trial.id, content)


def choices_path(suite: str) -> str:
    return f"{suite}/{choices.FILE_NAME}"


def add(archive: zipfile.ZipFile, path: str, content: bytes) -> None:
    """Write a member. No date is stored, so the same members give the same bytes. Raises zipfile.LargeZipFile."""
    about = zipfile.ZipInfo(path)
    about.external_attr = (stat.S_IFREG | 0o644) << 16
    archive.writestr(about, content, _packed(path))


@contextmanager
def opened(place: Path) -> Iterator[Bundle]:
    """Open an archive of records and check its index and its manifest.

    Raises: RecordError when the file cannot be read, is no such archive, is damaged, or has another schema.
    """
    with ExitStack() as stack:
        with _refused(place):
            file = stack.enter_context(opened_bounded(place, MAX_BYTES))
            size = check_end(file)
            archive = stack.enter_context(zipfile.ZipFile(file))
            unpacked = sum(info.file_size for info in archive.infolist())
            if unpacked > LEAST_UNPACKED + MOST_UNPACKED * size:
                raise ValueError(f"its files unpack to {unpacked:,} bytes, more than {MOST_UNPACKED} times its size")
            trials, tuned = _members(archive)
            _check_manifest(archive, place)
        yield Bundle(place, archive, trials, tuned)


@contextmanager
def _refused(place: Path) -> Iterator[None]:
    """Turns each exception that the content of a file causes into a RecordError."""
    try:
        yield
    except OSError as cause:
        raise RecordError(f"{place} cannot be read ({cause.strerror or cause})") from cause
    except ValidationError as cause:
        where = ".".join(map(str, cause.errors()[0]["loc"]))
        raise RecordError(
            f"{place}: its manifest is not valid: {where}: {cause.errors()[0]['msg']}; {AGAIN}"
        ) from cause
    except _DAMAGE as cause:
        reason = f"{place} is damaged, or was not made by `harness export` ({cause})"
        raise RecordError(f"{reason}; {AGAIN}") from cause


def check_end(file: BinaryIO, most: int = MAX_INDEX) -> int:
    """Check the size of the index before it is read. zipfile itself reads an index of any size. Return the file's."""
    size = file.seek(0, 2)
    if size < _END.size:
        raise ValueError("it is too short")
    file.seek(max(0, size - _END.size - _LOCATOR))
    tail = file.read(_LOCATOR + _END.size)
    signature, *_, index_bytes, _, comment = _END.unpack(tail[-_END.size :])
    if signature != b"PK\5\6" or comment or tail[: -_END.size].startswith(b"PK\6\7"):
        raise ValueError("it does not end as an exported file does")
    if index_bytes > most:
        raise ValueError(f"its index has more than {most:,} bytes")
    return size


def _members(archive: zipfile.ZipFile) -> tuple[tuple[BundledTrial, ...], tuple[str, ...]]:
    """The trials, and the suites with choices of tuning, in the order of the archive. Checks each member's entry in the
    index. Raises ValueError.
    """
    seen, trials, tuned = set(), {}, []
    for about in archive.infolist():
        name = about.filename
        if name in seen:
            raise ValueError("two of its members have one name")
        seen.add(name)
        found = MEMBER.fullmatch(name)
        if name == MANIFEST:
            max_bytes = MAX_MANIFEST
        elif found is None:
            raise ValueError(f"'{printable(name[:80])}' is no name of a file in an export")
        elif found["id"] is None:
            max_bytes = choices.MAX_BYTES
            tuned.append(found["suite"])
        else:
            max_bytes = FILES[found["file"]]
            trial = trials.setdefault((found["suite"], found["id"]), BundledTrial(found["suite"], found["id"]))
            trial.files[found["file"]] = about.file_size
        _check_member(about, max_bytes)
    if MANIFEST not in seen:
        raise ValueError(f"it has no {MANIFEST}")
    if not trials:
        raise ValueError("it has no record")
    return tuple(trials.values()), tuple(tuned)


def _check_manifest(archive: zipfile.ZipFile, place: Path) -> None:
    content = json.loads(_read(archive, MANIFEST))
    found = content.get("schema_version") if isinstance(content, dict) else None
    if found not in READ:
        raise RecordError(
            f"{place}: schema {found}, expected {SCHEMA}: another version of the harness made it; {AGAIN} by this one"
        )
    Manifest.model_validate(content)


def _check_member(about: zipfile.ZipInfo, max_bytes: int) -> None:
    kind = about.external_attr >> 28  # the file type of a Unix mode; 0 when the archive has none
    if kind not in (0, stat.S_IFREG >> 12):
        raise ValueError(f"'{about.filename}' is no regular file")
    if about.compress_type != _packed(about.filename):
        raise ValueError(f"'{about.filename}' is compressed with another method than `harness export` uses")
    if about.file_size > max_bytes:
        raise ValueError(f"'{about.filename}' has more than {max_bytes:,} bytes")


def _packed(path: str) -> int:
    return zipfile.ZIP_STORED if path.endswith(TOKEN_NLL.file) else zipfile.ZIP_DEFLATED


def _read(archive: zipfile.ZipFile, path: str) -> bytes:
    """Read a member. No more bytes are unpacked than the index states, and zipfile compares the checksum at the end."""
    size = archive.getinfo(path).file_size
    with archive.open(path) as source:
        content = source.read(size + 1)
    if len(content) != size:
        raise ValueError(f"'{path}' has another size than the archive states")
    return content
