"""Texts that a suite names: where they may lie, that only files are read, and that no message tells what they hold."""

import os
import socket

import pytest
from texts import lines

from harness.corpora import local_text, split_files
from harness.corpora.local_text import Text
from harness.errors import CorpusError
from harness.plan import load

CORPUS = "markov: {vocab_size: 12, num_tokens: 400, branching: 3}"
TEXT = lines(20, seed=1)


@pytest.fixture
def suite(project, changed):
    """A function: the path a suite gives its text -> the suite file."""

    def write(path: str):
        place = project / "suites" / "suite.yaml"
        place.write_text(changed((CORPUS, f"text: {{path: '{path}'}}")))
        return place

    return write


@pytest.mark.parametrize("path", ["own.txt", "../texts/own.txt", "./x/../own.txt", "linked.txt"])
def test_relative_paths_work_from_any_current_directory(path, project, suite, monkeypatch):
    (project / "texts").mkdir()
    for place in ("suites/own.txt", "texts/own.txt"):
        (project / place).write_text(TEXT)
    (project / "suites" / "linked.txt").symlink_to(project / "texts" / "own.txt")
    file = suite(path)
    read = {str(project / folder / "own.txt") for folder in ("suites", "texts")}
    for current in ("/", project, project / "suites"):
        monkeypatch.chdir(current)
        for spelled in (file, os.path.relpath(file)):
            assert load(type(file)(spelled)).trials[0].corpus.params["path"] in read


def test_relative_paths_of_a_folder_with_a_file_for_each_split(project, suite):
    for seed, split in enumerate(local_text.SPLITS):
        (project / f"own.{split}").write_text(lines(20, seed))
    assert load(suite("..")).trials[0].corpus.params["path"] == str(project)


def leaves(path: str, project) -> list[str]:
    return [
        f"4:18: corpora.0.text.path: '{path}' is outside of {project}, the folder that contains the suite's folder; "
        "write an absolute path if that is intended"
    ]


@pytest.mark.parametrize("path", ["../../secret.txt", "../../../../../../../../../../../etc/hostname", "link", "links"])
def test_relative_paths_that_leave_the_project_are_refused_links_too(path, project, suite, refused):
    (project.parent / "secret.txt").write_text(lines(20, seed=1))
    (project / "suites" / "link").symlink_to(project.parent / "secret.txt")
    (project / "suites" / "links").mkdir()
    for split in local_text.SPLITS:
        (project / "suites" / "links" / split).symlink_to(project.parent / "secret.txt")
    suite(path)
    assert refused(None) == leaves(path, project)


def test_an_absolute_path_is_the_users_word(project, suite):
    (project.parent / "outside.txt").write_text(TEXT)
    assert load(suite(str(project.parent / "outside.txt"))).trials


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/dev/zero", "cannot be read (not a regular file)"),
        ("/dev/stdin", "cannot be read (not a regular file)"),
        ("/proc/self/environ", "cannot be read (its content has another length than its size)"),
        ("/proc/self/mem", "cannot be read (Input/output error)"),
        ("fifo", "cannot be read (not a regular file)"),
        ("socket", "cannot be read (No such device or address)"),
        ("circle", "cannot be read (Too many levels of symbolic links)"),
        ("large", "cannot be read (larger than 2,147,483,648 bytes)"),
        ("absent", "no such file or folder; a path in a suite begins at the suite's folder"),
        ("x" * 5_000, "cannot be read (File name too long)"),
    ],
)
def test_what_is_no_text_file_is_refused_without_waiting_for_it(path, reason, project, suite, refused, monkeypatch):
    monkeypatch.chdir(project / "suites")
    os.mkfifo("fifo")
    os.symlink("circle", "circle")
    with open("large", "wb") as file:
        file.truncate(2 * 1024**3 + 1)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        suite(path)
        (problem,) = refused(None)
    assert problem.startswith("4:5: corpora.0: ")
    assert problem.endswith(f": {reason}")


@pytest.mark.parametrize("content", [b"secret", b"secret words", b"secret\xff" * 20, b"\x00secret", b"secret \x1b[2J"])
@pytest.mark.parametrize("level", ["word", "char"])
def test_no_message_tells_what_a_file_holds(content, level, tmp_path):
    place = tmp_path / "text"
    place.write_bytes(content if level == "word" or b"\xff" in content else b"s")
    with pytest.raises(CorpusError) as caught:
        Text(path=place, level=level).facts()
    assert "secret" not in str(caught.value)
    assert "0xff" not in str(caught.value)


def test_a_folder_of_many_names_shows_a_few(tmp_path):
    for index in range(50):
        (tmp_path / f"train{index}").write_text("a\n")
    with pytest.raises(CorpusError) as caught:
        Text(path=tmp_path).facts()
    assert str(caught.value).count("train1") + 1 == split_files.MAX_NAMES


def test_line_ends_of_any_system_are_line_ends(tmp_path):
    for name, end in {"unix": b"\n", "dos": b"\r\n", "mac": b"\r"}.items():
        (tmp_path / name).write_bytes(TEXT.encode().replace(b"\n", end))
    contents = {Text(path=tmp_path / name).facts().content for name in ("unix", "dos", "mac")}
    assert len(contents) == 1
