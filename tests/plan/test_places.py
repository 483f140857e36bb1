"""Suites are found by path and by name; of one with mistakes, line, column, place and sentence of each are said."""

import golden
import pytest

from harness.errors import SuiteError
from harness.plan import load, select
from harness.plan.reader import name_of, names, suite_file, suite_name, suites_in

TEXT = """\
corpora: [markov: {vocab_size: 12, num_tokens: 4000, branching: 3}]
backbones: [lstm: {d_model: 8, num_layers: 1}]
heads: [softmax]
seeds: [1]
train: {lr: 1, epochs: 1}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """suites/quick.yaml, which has another name within, and suites/plain.yaml, in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "quick.yaml").write_text(f"name: other\n{TEXT}")
    (tmp_path / "suites" / "plain.yaml").write_text(TEXT)
    return tmp_path


def test_a_name_is_a_file_in_suites_unless_there_is_a_file_that_is_called_so(folder):
    assert suite_file("quick") == suite_file("suites/quick.yaml")
    assert load("plain").name == "plain"
    assert [trial.id for trial in load("quick").trials] == [trial.id for trial in load("suites/plain.yaml").trials]
    assert load("plain").path.as_posix() == "suites/plain.yaml"
    assert suite_file("other").as_posix() == "suites/quick.yaml"  # by its key, as `harness list suites` shows it
    (folder / "plain").mkdir()  # as a folder of results may be called
    assert suite_file("plain").as_posix() == "suites/plain.yaml"
    (folder / "quick").write_text(TEXT)
    assert suite_file("quick").as_posix() == "quick"


@pytest.mark.parametrize("given", ["quik", "zzz", "../quick"])
def test_what_is_neither_is_one_sentence_with_the_nearest_name(folder, given):
    with pytest.raises(SuiteError) as caught:
        load(given)
    (problem,) = caught.value.problems
    assert problem.startswith(("no suite ", f"{given}: no such file"))
    assert ("did you mean 'quick'?" in problem) == (given != "zzz")


def test_the_name_of_a_suite_is_found_in_its_file(folder):
    assert suite_name("anything") == "anything"  # results may be of a suite whose file is elsewhere
    assert suite_name("suites/quick.yaml") == "other"
    assert suite_name("suites/plain.yaml") == "plain"
    assert {"other", "plain", "quick", "quickstart"} <= set(names())  # and those of the harness


def test_the_suites_of_a_folder_are_known_by_the_key_name_else_by_the_file(folder):
    suites = folder / "suites"
    (suites / "broken.yaml").write_text("name: [unclosed\n")
    (suites / "number.yaml").write_text(f"name: 7\n{TEXT}")  # which no suite may be called
    (suites / "notes.txt").write_text("name: notes\n")
    assert name_of(suites / "quick.yaml") == "other"
    assert name_of(suites / "broken.yaml") == "broken"
    files = {"broken": "broken", "number": "number", "other": "quick", "plain": "plain"}
    assert list(suites_in(suites).items()) == [(name, suites / f"{file}.yaml") for name, file in files.items()]
    assert suites_in(folder / "none") == {}


def test_of_two_files_with_one_name_the_one_that_is_called_so_counts(folder):
    suites = folder / "suites"
    for copy, expected in (("zzz", "quick"), ("aaa", "aaa"), ("other", "other")):  # else the first
        (suites / f"{copy}.yaml").write_text(f"name: other\n{TEXT}")
        assert suites_in(suites)["other"] == suites / f"{expected}.yaml"


@pytest.mark.parametrize("name", ["My Suite", "a.b", "leaderboard"])
def test_a_file_name_that_cannot_be_a_name_is_said(tmp_path, name):
    path = tmp_path / f"{name}.yaml"
    path.write_text(TEXT.replace("lr: 1", "lr: -1"))
    with pytest.raises(SuiteError) as caught:
        load(path)
    first, second = caught.value.problems  # together with the others
    assert first.startswith(f"{path}:1:1: ")
    assert name in first
    assert "greater than 0" in second


@pytest.mark.system
@pytest.mark.parametrize(
    "command", [["plan"], ["table"], ["run", "--only", "seed=7"], ["report"], ["diff", "a", "b", "--suite"]]
)
def test_every_command_that_takes_a_suite_takes_a_name(folder, harness, command):
    first, *more = command

    def with_suite(name: str):
        return harness(*command, name) if first == "diff" else harness(first, name, *more)

    done, wrong = with_suite("plain"), with_suite("plane")
    assert "no such file" not in done.err
    assert "no suite" not in done.err
    assert (wrong.code, "no suite 'plane'" in wrong.err) == (2, True)


GOLDEN = {path.stem: golden.read(f"messages/{path.stem}") for path in sorted(golden.FOLDER.glob("messages/*.yaml"))}
CASES = [
    pytest.param(name, index, marks=pytest.mark.needs(case.get("needs")))
    for name, golden in GOLDEN.items()
    for index, case in enumerate(golden["cases"])
]


@pytest.mark.parametrize(("name", "index"), CASES)
def test_each_mistake_is_told_in_these_words_at_its_place(name, index, write, problems, layered, wide_heads):
    text, case = GOLDEN[name]["base"], GOLDEN[name]["cases"][index]
    for old, new in case.get("change", {}).items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    expected = case["says"] if isinstance(case["says"], list) else [case["says"]]
    if not expected:
        load(write(text + case["add"]))
        return
    call = load if "only" not in case else lambda path: select(load(path).trials, ("head=mos", case["only"]))
    found = problems(text + case.get("add", ""), *case.get("set", ()), call=call)
    for number, said in enumerate(expected):
        if said.endswith("..."):
            found[number] = f"{found[number][: len(said) - 3]}..."
    assert found == expected
