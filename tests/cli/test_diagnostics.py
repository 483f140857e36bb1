"""`harness inspect` and `harness sample`."""

import importlib.util
import json
import shlex
from pathlib import Path

import pytest
from commands import mistakes

_SPEC = importlib.util.spec_from_file_location("letters", Path(__file__).parents[1] / "diagnostics" / "conftest.py")
_LETTERS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_LETTERS)
letters, finish = _LETTERS.letters, _LETTERS.finish


@pytest.fixture
def ids(finish, tmp_path, monkeypatch):
    """The ids of finished trials below the current folder, by 'head on backbone'."""
    monkeypatch.chdir(tmp_path)
    return {name: spec.id for name, spec in finish().items()}


def test_inspect_prints_json_alone(harness, ids):
    done = harness("inspect", ids["mfs on lstm"], "--text", "abc", "--top", "3", "--json")
    told = json.loads(done.out)
    assert (done.code, told["trial"], told["mixture"]) == (0, ids["mfs on lstm"], True)
    (position,) = told["positions"]
    assert position["token"] == "c"
    assert [voice["name"] for voice in position["voices"]] == [
        "mixture",
        "component 1",
        "component 1, facet 1",
        "component 1, facet 2",
        "component 2",
        "component 3",
    ]
    assert all(len(voice["words"]) == 3 for voice in position["voices"])
    gates = [
        voice["weight"]
        for voice in position["voices"]
        if voice["name"] in ("component 1", "component 2", "component 3")
    ]
    assert sum(gates) == pytest.approx(1)
    every = harness("inspect", ids["mfs on lstm"], "--text", "abc", "--all", "--json")
    assert [each["token"] for each in json.loads(every.out)["positions"]] == ["a", "b", "c"]


def test_inspect_shows_tables_and_says_what_is_no_mixture(harness, ids):
    shown = harness("inspect", ids["mfs on transformer_encoder"], "--text", "ab").out
    assert "after 'b'" in shown
    assert "words 1 mod 2" in shown
    plain = harness("inspect", ids["mixtape on lstm"], "--text", "ab").out
    assert "mixtape is not a mixture, so it has no components to show" in plain


@pytest.mark.parametrize("name", ["softmax on lstm", "mfs on transformer_encoder"])
def test_sample_goes_on_from_the_prompt(harness, ids, name):
    asked = ("sample", ids[name], "--prompt", "abc", "--tokens", "12", "--num", "2", "--seed", "4", "--top-p", "0.9")
    told = json.loads(harness(*asked, "--json").out)
    assert [text[:3] for text in told["texts"]] == ["abc", "abc"]
    assert [len(text) for text in told["texts"]] == [15, 15]
    assert told["tokens_per_second"] > 0
    shown = harness(*asked)
    assert shown.code == 0
    assert all(text in shown.out for text in told["texts"])  # the same seed
    assert "tokens a second" in shown.out


@pytest.mark.parametrize(("command", "sentence"), mistakes("letters"))
def test_a_users_mistake_is_one_sentence(harness, ids, command, sentence):
    done = harness(*shlex.split(command.replace("ID", ids["softmax on lstm"])))
    assert done.code == 2
    assert sentence in done.err
    assert done.err.count("\n") == 1
