"""Pinned downloads against a local server: what goes wrong has a second try, then one sentence, and leaves nothing."""

import hashlib
import io
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pooch
import pytest
from commands import PATIENCE

from harness.corpora import download
from harness.corpora.download import PinnedFile, fetch, verified
from harness.errors import CorpusError

BODY = b"the cat sat on the mat\n" * 20_000
SENT = {  # what is sent under a name, with seconds between the parts
    "right": (BODY,),
    "wrong": (b"x" * len(BODY),),
    "cut": (BODY[:1000],),
    "silent": (BODY[:10], 600.0),
    "drip": (b"x", 0.1) * 2000,
    "slow": (BODY[:1000], 0.5, BODY[1000:]),
}
FETCH = """\
import sys
from pathlib import Path
from harness.corpora.download import PinnedFile, fetch
print(fetch(PinnedFile("corpus/slow", sys.argv[1], sys.argv[2]), Path(sys.argv[3])))
"""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requested.append(self.path)
        name = self.path.strip("/")
        if name.endswith("_once"):
            name = name.removesuffix("_once") if self.server.requested.count(self.path) == 1 else "right"
        if name in SENT:
            self._send(*SENT[name])
        elif name == "endless":
            self._send(*[BODY] * 100, length=100 * len(BODY))
        elif name == "reset":
            self.connection.close()
        elif name == "failing":
            self.send_error(500)
        else:
            self.send_response(302)
            self.send_header("Location", {"moved": "/right", "circle": "/circle"}[name])
            self.end_headers()

    def _send(self, *pieces: bytes | float, length: int = len(BODY)):
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        try:
            for piece in pieces:
                if isinstance(piece, float):
                    self.server.ended.wait(piece)
                else:
                    self.wfile.write(piece)
                    self.wfile.flush()
        except OSError:
            pass  # the client has had enough

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr(pooch.core.time, "sleep", lambda seconds: None)  # between the first try and the second
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        http.requested, http.ended, http.daemon_threads = [], threading.Event(), True
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield http
        http.ended.set()
        http.shutdown()
        thread.join()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def pinned(server, name: str) -> PinnedFile:
    url = f"http://127.0.0.1:{server.server_address[1]}/{name}"
    return PinnedFile(f"corpus/{name}", url, sha256(BODY))


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("name", "requested"),
    [
        ("right", ["/right"]),
        ("wrong_once", ["/wrong_once"] * 2),
        ("cut_once", ["/cut_once"] * 2),
        ("failing_once", ["/failing_once"] * 2),
        ("moved", ["/moved", "/right"]),
        ("slow", ["/slow"]),
    ],
)
def test_bad_hash_or_a_cut_transfer_is_tried_once_more(name, requested, server, tmp_path):
    place = fetch(pinned(server, name), tmp_path)
    assert fetch(pinned(server, name), tmp_path) == place == tmp_path / "corpus" / name  # which asks for nothing
    assert place.read_bytes() == BODY
    assert files(tmp_path) == [f"corpus/{name}"]
    assert server.requested == requested


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wrong", "the downloaded file has another sha256 than the pinned one"),
        ("cut", "the transfer was interrupted"),
        ("reset", "no connection"),
        ("failing", "HTTPError: 500 Server Error"),
        ("circle", "TooManyRedirects"),
        ("silent", "too slow: no data received for 2 s"),
        ("drip", "too slow: "),
        ("endless", "RequestException: the file has more than 1,000,000 bytes"),
    ],
)
def test_bad_hash_twice_is_one_sentence_with_the_way_out_and_nothing_is_left(
    name, reason, server, tmp_path, monkeypatch
):
    limits = {"silent": ("STALL_SECONDS", 2.0), "drip": ("GRACE_SECONDS", 0.3), "endless": ("MAX_BYTES", 10**6)}
    if name in limits:  # each alone: a busy machine serves the others too slowly for limits as tight as these
        monkeypatch.setattr(download, *limits[name])
    file = pinned(server, name)
    with pytest.raises(CorpusError) as caught:
        fetch(file, tmp_path)
    message = str(caught.value)
    for part in (f"{name} is not in {tmp_path / 'corpus'}", f"({reason}", file.url, "--data", "HARNESS_DATA"):
        assert part in message
    assert files(tmp_path) == []
    assert server.requested.count(f"/{name}") == (2 if name != "circle" else 62)


def test_two_processes_fetch_one_file_at_once(server, tmp_path):
    file = pinned(server, "slow")
    both = [
        subprocess.Popen(
            [sys.executable, "-c", FETCH, file.url, file.sha256, tmp_path], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    ends = [process.communicate(timeout=PATIENCE)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert ends == [str(tmp_path / "corpus" / "slow")] * 2
    assert (tmp_path / "corpus" / "slow").read_bytes() == BODY
    assert files(tmp_path) == ["corpus/slow"]


def test_a_data_folder_that_cannot_be_written_is_one_sentence(server, tmp_path):
    (tmp_path / "corpus").write_text("in the way")
    for folder in (Path("/sys"), tmp_path):
        told = rf"^right is not in {folder}/corpus and could not be downloaded \(.*Error"
        with pytest.raises(CorpusError, match=told):
            fetch(pinned(server, "right"), folder)
    assert files(tmp_path) == ["corpus"]
    assert server.requested == []


def test_bad_hash_of_a_present_file_is_named_and_the_file_left_as_it_is_and_what_verifies_never_downloads(
    server, tmp_path
):
    file, place = pinned(server, "right"), tmp_path / "corpus" / "right"
    with pytest.raises(CorpusError, match=r"^right is not in .*corpus: name the folder that has it by --data$"):
        verified(file, tmp_path)
    place.parent.mkdir()
    place.write_bytes(b"mine")
    for check in (fetch, verified):
        with pytest.raises(CorpusError, match="right has another content: expected sha256") as caught:
            check(file, tmp_path)
        for part in (str(place), file.sha256, sha256(b"mine")):
            assert part in str(caught.value)
    assert place.read_bytes() == b"mine"
    assert server.requested == []


def test_an_interrupted_download_leaves_nothing(server, tmp_path, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "_stream", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch(pinned(server, "right"), tmp_path)
    assert files(tmp_path) == []


# one file out of an archive, which is opened only if it is the pinned one

MEMBER, IN_ARCHIVE = b"the cat sat on the mat\n" * 1000, "text8/train.txt"


def of_zip(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


@pytest.fixture
def archived(tmp_path, monkeypatch):
    """A file that comes in an archive, and the downloads of the archive that were asked for."""
    archive, asked = of_zip({IN_ARCHIVE: MEMBER}), []

    def served(file, place):
        asked.append(file.url)
        place.parent.mkdir(parents=True)
        place.write_bytes(archive)

    monkeypatch.setattr(download, "_download", served)
    whole = PinnedFile("text8/text8.zip", "http://nowhere/text8.zip", sha256(archive))
    return PinnedFile("text8/train.txt", IN_ARCHIVE, sha256(MEMBER), archive=whole), asked


def test_a_pinned_file_is_cut_out_of_its_archive_once(archived, tmp_path):
    file, asked = archived
    assert fetch(file, tmp_path) == fetch(file, tmp_path) == tmp_path / "text8" / "train.txt"
    assert (tmp_path / "text8" / "train.txt").read_bytes() == MEMBER
    assert asked == ["http://nowhere/text8.zip"]


def test_an_archive_of_another_content_is_never_opened(archived, tmp_path, monkeypatch):
    file, asked = archived
    (tmp_path / "text8").mkdir()
    (tmp_path / "text8" / "text8.zip").write_bytes(of_zip({IN_ARCHIVE: MEMBER, "more": b""}))
    monkeypatch.setattr(download, "copy_member", lambda *args, **kwargs: pytest.fail("opened"))
    with pytest.raises(CorpusError, match=r"text8\.zip has another content: expected sha256"):
        fetch(file, tmp_path)
    assert asked == []


def test_a_member_of_another_content_is_one_sentence_and_leaves_nothing(archived, tmp_path):
    file, _ = archived
    wrong = PinnedFile("text8/valid.txt", IN_ARCHIVE, sha256(b"another"), archive=file.archive)
    with pytest.raises(CorpusError) as caught:
        fetch(wrong, tmp_path)
    for part in (
        "valid.txt is not in",
        "another sha256 than the pinned one",
        f"http://nowhere/text8.zip ({IN_ARCHIVE} in it)",
    ):
        assert part in str(caught.value)
    assert [path.name for path in (tmp_path / "text8").iterdir()] == ["text8.zip"]
