"""One file out of an archive, which is opened only if it is the pinned one."""

import hashlib
import io
import zipfile

import pytest

from harness.corpora import download
from harness.corpora.download import PinnedFile, fetch
from harness.errors import CorpusError

BODY = b"the cat sat on the mat\n" * 1000
NAME = "text8/train.txt"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def of_zip(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


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


@pytest.mark.guards("archive-hash")
def test_an_archive_of_another_content_is_never_opened(pinned, tmp_path, monkeypatch):
    file, asked = pinned
    (tmp_path / "text8").mkdir()
    (tmp_path / "text8" / "text8.zip").write_bytes(of_zip({NAME: BODY, "more": b""}))
    monkeypatch.setattr(download, "copy_member", lambda *args, **kwargs: pytest.fail("opened"))
    with pytest.raises(CorpusError, match=r"text8\.zip has another content: expected sha256"):
        fetch(file, tmp_path)
    assert asked == []


@pytest.mark.guards("member-hash")
def test_a_member_of_another_content_is_one_sentence_and_leaves_nothing(pinned, tmp_path):
    file, _ = pinned
    wrong = PinnedFile("text8/valid.txt", NAME, sha256(b"another"), archive=file.archive)
    with pytest.raises(CorpusError) as caught:
        fetch(wrong, tmp_path)
    for part in (
        "valid.txt is not in",
        "another sha256 than the pinned one",
        f"http://nowhere/text8.zip ({NAME} in it)",
    ):
        assert part in str(caught.value)
    assert [path.name for path in (tmp_path / "text8").iterdir()] == ["text8.zip"]
