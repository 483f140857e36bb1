"""One file out of an archive: only the one that is named, only to the place that is named, whatever the archive is."""

import hashlib
import io
import tarfile
import zipfile

import pytest

from harness.corpora import archives, download
from harness.corpora.archives import copy_member
from harness.corpora.download import PinnedFile, fetch
from harness.errors import CorpusError

BODY = b"the cat sat on the mat\n" * 1000
NAME = "text8/train.txt"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def of_zip(members: dict[str, bytes], mode: int = 0) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            about = zipfile.ZipInfo(name)
            about.external_attr, about.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(about, content)
    return made.getvalue()


def of_tar(members: dict[str, bytes], kind: bytes = tarfile.REGTYPE, target: str = "", form: str = "gz") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=f"w:{form}") as archive:
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.type, about.linkname, about.size = kind, target, len(content)
            archive.addfile(about, io.BytesIO(content))
    return made.getvalue()


@pytest.fixture
def cut(tmp_path):
    """A function: an archive -> the member's copy, or None with the reason why there is none; nothing else is left."""

    def of(archive: bytes, name: str = NAME, content: bytes = BODY) -> tuple[bytes | None, str]:
        source, place = tmp_path / "in" / "archive", tmp_path / "out" / "text"
        source.parent.mkdir()
        source.write_bytes(archive)
        reason = ""
        try:
            copy_member(source, name, place, sha256=sha256(content))
        except ValueError as error:
            reason = str(error)
        left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if not path.is_dir())
        assert left == ["in/archive"] + (["out/text"] if not reason else [])
        return place.read_bytes() if not reason else None, reason

    return of


@pytest.mark.parametrize("make", [of_zip, of_tar])
def test_the_named_file_is_copied_and_no_other(make, cut):
    assert cut(make({"other": b"x", NAME: BODY, "text8/train.txt.bak": b"y"})) == (BODY, "")


@pytest.mark.parametrize("form", ["", "gz", "bz2", "xz"])
def test_tar_of_any_compression_is_read(form, cut):
    assert cut(of_tar({NAME: BODY}, form=form)) == (BODY, "")


@pytest.mark.parametrize("make", [of_zip, of_tar])
@pytest.mark.parametrize("name", ["../evil", "/tmp/evil-of-an-archive", "a/../../evil", "..\\evil", "out/text"])
def test_tar_traversal_names_write_nothing_even_when_they_are_asked_for(make, name, cut):
    # the name finds the content; where it goes is the caller's choice
    assert cut(make({NAME: b"x", name: BODY}), name) == (BODY, "")


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (of_tar({NAME: b""}, tarfile.SYMTYPE, "/etc/passwd"), "is not a regular file"),
        (of_tar({NAME: b""}, tarfile.LNKTYPE, "../../etc/passwd"), "is not a regular file"),
        (of_tar({NAME: b""}, tarfile.CHRTYPE), "is not a regular file"),
        (of_tar({NAME: b""}, tarfile.FIFOTYPE), "is not a regular file"),
        (of_tar({NAME: b""}, tarfile.DIRTYPE), "is not a regular file"),
        (of_zip({NAME: b"/etc/passwd"}, mode=0o120777), "is not a regular file"),
        (of_zip({NAME: b""}, mode=0o020666), "is not a regular file"),
    ],
    ids=["symlink", "hardlink", "device", "fifo", "folder", "zip symlink", "zip device"],
)
def test_tar_traversal_by_links_and_devices_is_refused(archive, reason, cut):
    assert cut(archive)[1] == f"'{NAME}' of the archive {reason}"


@pytest.mark.parametrize("make", [of_zip, of_tar])
def test_a_missing_member_another_hash_and_a_cut_archive_are_refused(make, cut, tmp_path):
    whole = make({NAME: bytes(range(256)) * 4000})
    for archive, reason in {
        make({"train.txt": BODY}): f"the archive has no files called '{NAME}'; one is expected",
        make({NAME: b"another"}): f"'{NAME}' of the archive has another sha256 than the pinned one",
        whole[: len(whole) // 2]: "the archive cannot be read: ",
        b"": "the archive cannot be read: ",
        b"no archive at all": "the archive cannot be read: ",
    }.items():
        assert cut(archive)[1].startswith(reason)
        for path in (tmp_path / "in").iterdir():
            path.unlink()
        (tmp_path / "in").rmdir()


def test_a_name_that_is_there_twice_is_refused(cut):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for content in (BODY, b"another"):
            about = tarfile.TarInfo(NAME)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    assert cut(made.getvalue())[1] == f"the archive has 2 files called '{NAME}'; one is expected"


@pytest.mark.parametrize("make", [of_zip, of_tar])
def test_a_bomb_is_refused_by_what_it_says(make, cut, monkeypatch):
    monkeypatch.setattr(archives, "MAX_BYTES", 10**6)
    assert cut(make({NAME: bytes(10**6 + 1)}))[1] == f"'{NAME}' of the archive has more than 1,000,000 bytes"


def test_a_bomb_that_says_less_than_it_holds_ends_where_it_says(cut):
    archive = of_zip({NAME: bytes(10**6)})
    said, less = (10**6).to_bytes(4, "little"), (1000).to_bytes(4, "little")
    assert archive.count(said) == 2  # the local header and the directory
    assert cut(archive.replace(said, less))[1].startswith("the archive cannot be read")


def test_an_encrypted_member_is_refused(cut):
    archive = bytearray(of_zip({NAME: BODY}))
    archive[6] |= 1
    archive[archive.index(b"PK\x01\x02") + 8] |= 1
    assert "encrypted" in cut(bytes(archive))[1]


@pytest.fixture
def pinned(tmp_path, monkeypatch):
    """A file that comes in an archive, and the downloads of the archive that were asked for."""
    archive, asked = of_zip({NAME: BODY}), []

    def served(file, place):
        asked.append(file.url)
        place.parent.mkdir(parents=True)
        place.write_bytes(archive)

    monkeypatch.setattr(download, "_download", served)
    whole = PinnedFile("text8/text8.zip", "http://nowhere/text8.zip", sha256(archive))
    return PinnedFile("text8/train.txt", NAME, sha256(BODY), archive=whole), asked


def test_a_pinned_file_is_cut_out_of_its_archive_once(pinned, tmp_path):
    file, asked = pinned
    assert fetch(file, tmp_path) == fetch(file, tmp_path) == tmp_path / "text8" / "train.txt"
    assert (tmp_path / "text8" / "train.txt").read_bytes() == BODY
    assert asked == ["http://nowhere/text8.zip"]


def test_an_archive_of_another_content_is_never_opened(pinned, tmp_path, monkeypatch):
    file, asked = pinned
    (tmp_path / "text8").mkdir()
    (tmp_path / "text8" / "text8.zip").write_bytes(of_zip({NAME: BODY, "more": b""}))
    monkeypatch.setattr(download, "copy_member", lambda *args, **kwargs: pytest.fail("opened"))
    with pytest.raises(CorpusError, match=r"text8\.zip has another content: expected sha256"):
        fetch(file, tmp_path)
    assert asked == []


def test_a_member_that_is_wrong_is_one_sentence_with_the_archive_and_its_place(pinned, tmp_path):
    file, _ = pinned
    wrong = PinnedFile("text8/valid.txt", "valid.txt", file.sha256, archive=file.archive)
    with pytest.raises(CorpusError) as caught:
        fetch(wrong, tmp_path)
    for part in ("valid.txt is not in", "no files called 'valid.txt'", "http://nowhere/text8.zip (valid.txt in it)"):
        assert part in str(caught.value)
    assert not (tmp_path / "text8" / "valid.txt").exists()


def test_no_more_is_read_of_a_member_than_it_says():
    source, target = io.BytesIO(bytes(range(100))), io.BytesIO()
    assert archives._copied(source, target, 10) == hashlib.sha256(bytes(range(10))).hexdigest()
    assert (source.tell(), target.getvalue()) == (10, bytes(range(10)))
