"""Pinned downloads against a local server: right and wrong hash, a cut transfer, nobody there, a foreign file."""

import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness.corpora.download import PinnedFile, fetch, verified
from harness.errors import CorpusError

BODY = b"the cat sat on the mat\n" * 1000
OTHER = b"another text\n"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/missing.txt":
            self.send_error(404)
            return
        self.server.requested.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY) + (100 if self.path == "/cut.txt" else 0)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        http.requested = []
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield http
        http.shutdown()
        thread.join()


def pinned(server, name="text.txt", content=BODY) -> PinnedFile:
    return PinnedFile(f"corpus/{name}", f"http://127.0.0.1:{server.server_address[1]}/{name}", sha256(content))


def files(folder) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_file_with_the_right_hash_is_there_afterwards_and_not_fetched_twice(server, tmp_path):
    file = pinned(server)
    assert fetch(file, tmp_path) == fetch(file, tmp_path) == tmp_path / "corpus" / "text.txt"
    assert (tmp_path / "corpus" / "text.txt").read_bytes() == BODY
    assert files(tmp_path) == ["corpus/text.txt"]
    assert server.requested == ["/text.txt"]


@pytest.mark.guards("download-hash")
def test_download_with_another_hash_is_refused_and_leaves_nothing(server, tmp_path):
    with pytest.raises(CorpusError, match="the downloaded file has another sha256 than the pinned one"):
        fetch(pinned(server, content=OTHER), tmp_path)
    assert server.requested == ["/text.txt"] * 2  # once more, then given up
    assert files(tmp_path) == []


@pytest.mark.parametrize("content", [BODY, BODY + bytes(100)])
def test_transfer_cut_short_is_refused_and_leaves_nothing(server, tmp_path, content):
    with pytest.raises(CorpusError, match=r"cut\.txt is not in .* could not be downloaded"):
        fetch(pinned(server, "cut.txt", content), tmp_path)
    assert server.requested == ["/cut.txt"] * 2
    assert files(tmp_path) == []


def test_file_the_server_does_not_have_is_refused_and_leaves_nothing(server, tmp_path):
    with pytest.raises(CorpusError, match=r"missing\.txt is not in .* could not be downloaded \(HTTPError: 404"):
        fetch(pinned(server, "missing.txt"), tmp_path)
    assert files(tmp_path) == []


def test_nobody_listening_gives_one_sentence_with_file_folder_url_and_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as closed:  # bound and never listening: connections are refused
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/text.txt"
        with pytest.raises(CorpusError) as caught:
            fetch(PinnedFile("corpus/text.txt", url, sha256(BODY)), tmp_path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    for part in ("text.txt", str(tmp_path / "corpus"), url, "no connection", "--data", "HARNESS_DATA"):
        assert part in message
    assert files(tmp_path) == []


def test_data_folder_that_is_a_file_is_one_sentence(server, tmp_path):
    (tmp_path / "corpus").write_text("in the way")
    with pytest.raises(CorpusError, match=r"text\.txt is not in .* could not be downloaded"):
        fetch(pinned(server), tmp_path)
    assert files(tmp_path) == ["corpus"]


@pytest.mark.guards("present-file-hash")
def test_present_file_with_another_content_is_named_with_both_hashes_and_left_alone(server, tmp_path):
    place = tmp_path / "corpus" / "text.txt"
    place.parent.mkdir()
    place.write_bytes(OTHER)
    for check in (fetch, verified):
        with pytest.raises(CorpusError) as caught:
            check(pinned(server), tmp_path)
        for part in (str(place), sha256(BODY), sha256(OTHER)):
            assert part in str(caught.value)
    assert place.read_bytes() == OTHER
    assert files(tmp_path) == ["corpus/text.txt"]
    assert server.requested == []


def test_verified_never_downloads(server, tmp_path):
    with pytest.raises(CorpusError, match=r"^text\.txt is not in .*corpus$"):
        verified(pinned(server), tmp_path)
    assert server.requested == []
