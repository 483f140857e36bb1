"""The file format of `harness export`: a zip archive, read member by member and never unpacked to disk.

    manifest.json                        the schema, and for each trial its files with their sizes and SHA-256
    <suite>/<trial id>/record.json       the same bytes as in the results folder
    <suite>/<trial id>/timing.json       the same, if the trial has this file
    <suite>/<trial id>/test_nll.npz      the same, if the trial has this file
    <suite>/<trial id>/diagnostics.json  the same, if the trial has this file
    <suite>/<trial id>/replicates.json   the same, if the trial has this file
    <suite>/tuning.json                  the points that tuning has chosen, of a suite with `tune`

Nothing in a file is trusted when it is read. The size of the archive's index is checked before the index is read. Each
name must be one of those above, and each size must be the one in the manifest. Names are never used as paths: the
folder of a trial is made of a checked suite name and a checked id.
"""

import hashlib
import json
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.errors import RecordError
from harness.machine.files import opened_bounded
from harness.plan.specs import SUITE_NAME, TRIAL_ID
from harness.records import choices, sealed, store
from harness.records.record import TrialRecord
from harness.records.sidecars import SIDECARS, TOKEN_NLL

SCHEMA = 1
MANIFEST = "manifest.json"
AGAIN = "export the records again where they were made"  # what to do where a file does not verify
MAX_MANIFEST = 32 * 1024**2
# A larger archive, or one with more members, needs the 64-bit form of zip, which is neither written nor read.
MAX_BYTES = 2**31 - 1
MAX_MEMBERS = 2**16 - 1
MOST_UNPACKED, LEAST_UNPACKED = 100, 2**20  # bytes: for each of the archive, and in any case; exports have up to 5
MAX_INDEX = 200 * MAX_MEMBERS  # bytes: for each member its name and 46 more
FILES = {store.FILE_NAME: store.MAX_BYTES, **{each.file: each.max_bytes for each in SIDECARS.values()}}
_END = struct.Struct("<4s4H2LH")  # the last bytes of a zip archive without a comment
_LOCATOR = 20  # bytes before them in the 64-bit form
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Member(_Frozen):
    """The expected size and checksum of one file."""

    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Trial(_Frozen):
    """A trial and its files in the archive: name -> member."""

    suite: Annotated[str, Field(pattern=SUITE_NAME)]
    id: Annotated[str, Field(pattern=TRIAL_ID)]
    files: dict[Literal["record.json", "timing.json", "test_nll.npz", "diagnostics.json", "replicates.json"], Member]

    def path(self, name: str) -> str:
        """The name of a file of this trial in the archive."""
        return f"{self.suite}/{self.id}/{name}"


class Manifest(_Frozen):
    """The content of an archive. `tuning`: suite -> the file of its choices, left out if there is none, as in archives
    of older versions.
    """

    kind: Literal["records of output-head-harness"] = "records of output-head-harness"
    schema_version: int = SCHEMA
    harness: str
    tuning: dict[Annotated[str, Field(pattern=SUITE_NAME)], Member] = Field(default_factory=dict)
    trials: Annotated[tuple[Trial, ...], Field(min_length=1, max_length=MAX_MEMBERS)]

    @model_validator(mode="after")
    def _each_trial_once(self) -> "Manifest":
        if len({(trial.suite, trial.id) for trial in self.trials}) != len(self.trials):
            raise ValueError("it names one trial twice")
        return self

    @cached_property
    def members(self) -> dict[str, tuple[Member, int]]:
        """The name of each file in the archive -> what is expected of it, and how many bytes it may have at most."""
        of_suites = {choices_path(suite): (member, choices.MAX_BYTES) for suite, member in self.tuning.items()}
        of_trials = {
            trial.path(name): (member, FILES[name]) for trial in self.trials for name, member in trial.files.items()
        }
        return of_suites | of_trials


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
            # guard: bundle-sidecars
            if content is not None and SIDECARS[name].parsed(content, self.record, place) is None:
                of = f"another training of trial {self.record.id} than the record does"
                raise RecordError(f"{place}: belongs to {of}")
        return content


@dataclass(frozen=True, slots=True)
class Bundle:
    """An open archive of records. Its index agrees with its manifest."""

    place: Path
    manifest: Manifest
    archive: zipfile.ZipFile

    def content(self, path: str) -> bytes:
        """Read a member. Raises RecordError when its size or its checksum is not that of the manifest."""
        member, _ = self.manifest.members[path]
        with _refused(self.place):
            content = _read(self.archive, path, member.size)
        if hashlib.sha256(content).hexdigest() != member.sha256:  # guard: bundle-member-hash
            raise RecordError(f"{self.place}: {path} does not have the checksum of the manifest; {AGAIN}")
        return content

    def files(self, trial: Trial) -> Files:

        def content(name: str) -> bytes | None:
            return self.content(trial.path(name)) if name in trial.files else None

        return Files(self.place / trial.suite / trial.id, content)


def choices_path(suite: str) -> str:
    return f"{suite}/{choices.FILE_NAME}"


def add(archive: zipfile.ZipFile, path: str, content: bytes) -> Member:
    """Write a member. No date is stored, so the same members give the same bytes. Raises zipfile.LargeZipFile."""
    about = zipfile.ZipInfo(path)
    about.external_attr = (stat.S_IFREG | 0o644) << 16
    archive.writestr(about, content, _packed(path))
    return Member(size=len(content), sha256=hashlib.sha256(content).hexdigest())


@contextmanager
def opened(place: Path) -> Iterator[Bundle]:
    """Open an archive of records and check its index and its manifest.

    Raises: RecordError when the file cannot be read, is no such archive, is damaged, has another schema, or does not
        have exactly the members of its manifest.
    """
    with ExitStack() as stack:
        with _refused(place):
            file = stack.enter_context(opened_bounded(place, MAX_BYTES))
            size = _check_end(file)
            archive = stack.enter_context(zipfile.ZipFile(file))
            unpacked = sum(info.file_size for info in archive.infolist())
            if unpacked > LEAST_UNPACKED + MOST_UNPACKED * size:
                raise ValueError(f"its files unpack to {unpacked:,} bytes, more than {MOST_UNPACKED} times its size")
            manifest = _manifest(archive, place)
        yield Bundle(place, manifest, archive)


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


def _check_end(file: BinaryIO) -> int:
    """Check the size of the index before it is read. zipfile itself reads an index of any size. Return the file's."""
    size = file.seek(0, 2)
    if size < _END.size:
        raise ValueError("it is too short")
    file.seek(max(0, size - _END.size - _LOCATOR))
    tail = file.read(_LOCATOR + _END.size)
    signature, *_, index_bytes, _, comment = _END.unpack(tail[-_END.size :])
    if signature != b"PK\5\6" or comment or tail[: -_END.size].startswith(b"PK\6\7"):  # guard: bundle-64-bit last
        raise ValueError("it does not end as an exported file does")
    if index_bytes > MAX_INDEX:  # guard: bundle-index-size
        raise ValueError(f"its index has more than {MAX_INDEX:,} bytes")
    return size


def _manifest(archive: zipfile.ZipFile, place: Path) -> Manifest:
    """The manifest. Checks that the members are exactly its files, regular and of the same sizes."""
    infos = {info.filename: info for info in archive.infolist()}
    if len(infos) != len(archive.infolist()):  # guard: bundle-twice
        raise ValueError("two of its members have one name")
    if MANIFEST not in infos:
        raise ValueError(f"it has no {MANIFEST}")
    _check_member(infos[MANIFEST], MAX_MANIFEST)
    content = json.loads(_read(archive, MANIFEST, infos[MANIFEST].file_size))
    found = content.get("schema_version") if isinstance(content, dict) else None
    if found != SCHEMA:  # guard: bundle-schema
        raise RecordError(
            f"{place}: schema {found}, expected {SCHEMA}: another version of the harness made it; {AGAIN} by this one"
        )
    manifest = Manifest.model_validate(content)
    odd = sorted(infos.keys() ^ {*manifest.members, MANIFEST})
    if odd:  # guard: bundle-odd-members
        raise ValueError(f"'{odd[0]}' is only in one of the archive and its manifest")
    for path, (member, max_bytes) in manifest.members.items():
        _check_member(infos[path], max_bytes)
        if infos[path].file_size != member.size:
            raise ValueError(f"'{path}' has another size than its manifest says")
    return manifest


def _check_member(about: zipfile.ZipInfo, max_bytes: int) -> None:
    kind = about.external_attr >> 28  # the file type of a Unix mode; 0 when the archive has none
    if kind not in (0, stat.S_IFREG >> 12):  # guard: bundle-links
        raise ValueError(f"'{about.filename}' is no regular file")
    if about.compress_type != _packed(about.filename):
        raise ValueError(f"'{about.filename}' is compressed with another method than `harness export` uses")
    if about.file_size > max_bytes:  # guard: bundle-member-size
        raise ValueError(f"'{about.filename}' has more than {max_bytes:,} bytes")


def _packed(path: str) -> int:
    return zipfile.ZIP_STORED if path.endswith(TOKEN_NLL.file) else zipfile.ZIP_DEFLATED


def _read(archive: zipfile.ZipFile, path: str, size: int) -> bytes:
    """Read a member of a stated size. No more bytes are unpacked, and zipfile compares the checksum at the end."""
    with archive.open(path) as source:
        content = source.read(size + 1)
    if len(content) != size:
        raise ValueError(f"'{path}' has another size than the archive states")
    return content
