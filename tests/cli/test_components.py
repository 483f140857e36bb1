"""`harness list` and `harness check`."""

import io
import json
import re

import pytest
from rich.console import Console

from harness.cli.commands import COMMANDS
from harness.extensions import EXTENSIONS


@pytest.mark.parametrize(
    ("what", "name", "origin", "parameter"),
    [
        ("heads", "mos", "heads/mos.py", "num_mixtures: integer = 10"),
        ("backbones", "lstm", "backbones/lstm.py", "d_model: integer = 200"),
        ("corpora", "markov", "harness/corpora/synthetic.py", "vocab_size: integer"),
        ("corpora", "text", "harness/corpora/local_text.py", "path: path"),
        ("heads", "softmax", "heads/softmax.py", "d_embed: integer | null = null"),
        ("heads", "softmax", "heads/softmax.py", "bias: true | false = true"),
        ("heads", "softmax", "heads/softmax.py", "compat: {log_epsilon: number} | null = null"),
        ("heads", "mos", "heads/mos.py", "activation: tanh | none = tanh"),
    ],
)
def test_list_names_what_is_known_its_file_and_parameters(harness, what, name, origin, parameter):
    done = harness("list", what, "--json")
    assert (done.code, done.err) == (0, "")
    (entry,) = [entry for entry in json.loads(done.out) if entry["name"] == name]
    assert entry["from"] == origin
    assert parameter in entry["parameters"]
    assert all(each["name"] in harness("list", what).out for each in json.loads(done.out))
    shown = harness("list", what, name).out
    assert f"from {origin}" in shown
    kind = parameter.partition(": ")[2].partition(" = ")[0]
    assert re.search(rf"^{parameter.partition(':')[0]} +{re.escape(kind)} ", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("what", "name", "expected"),
    [
        ("heads", "mos", ("Mixture of Softmaxes (MoS): a prior-weighted sum of K softmaxes over one output matrix.",
                          "Yang 2018", "K softmaxes")),
        ("suites", "embedded_mixtures", ("Is a mixture better than one softmax, on the novel that is part of the "
                                         "package?", "", "60 tuning trials and 80 trials of 28 epochs: 4 h 26 min")),
    ],
)  # fmt: skip
def test_list_says_what_each_is_its_source_and_its_cost(harness, what, name, expected):
    (entry,) = json.loads(harness("list", what, name, "--json").out)
    about, source, cost = expected
    assert (entry["about"], entry["source"]) == (about, source)
    assert entry["cost"].startswith(cost)


@pytest.mark.parametrize("what", ["heads", "backbones", "corpora", "suites"])
def test_on_a_terminal_each_is_one_line_of_80_characters(harness, monkeypatch, what):
    terminal = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80)
    monkeypatch.setattr("harness.cli.write.console", terminal)
    entries = json.loads(harness("list", what, "--json").out)
    harness("list", what, "--all")
    _, _, *lines = terminal.file.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == [entry["name"] for entry in entries]
    assert max(map(len, lines)) <= 80
    if what in ("heads", "suites"):  # these are said in brief
        assert [line for line in lines if "…" in line] == []
    if what == "suites":
        costs = [re.split("  +", line.strip())[-1] for line in lines]
        assert [cost for cost in costs if not re.fullmatch(r"(\d+ h [0-5]\d|[1-5]?\d) min|\d+ trials", cost)] == []


@pytest.mark.needs(*EXTENSIONS)
def test_a_list_without_a_kind_shows_what_to_begin_with(fresh, harness):
    few, everything = harness("list").out, harness("list", "--all").out
    assert few.count("\nharness ") == 12
    assert everything.count("\nharness ") == len(COMMANDS)
    assert (few.index("\ntiny ") < few.index("\nquickstart "), "\nptb_small_heads " in few) == (True, False)
    assert f"{len(COMMANDS) - 12} more commands: harness list --all" in few
    assert re.search(r"\d+ more suites, longer ones: harness list suites --all", few)
    assert "\nptb_small_heads " in everything
    assert "ptb_small_heads" in {each["name"] for each in json.loads(harness("list", "--json").out)}


def test_list_suites_has_the_names_that_suites_give_themselves(fresh, harness):
    tiny = (fresh / "suites" / "tiny.yaml").read_text()
    (fresh / "suites" / "copy.yaml").write_text(tiny.replace("name: tiny", "name: renamed"))
    (fresh / "suites" / "broken.yaml").write_text("name: [unclosed\n")
    listed = json.loads(harness("list", "suites", "--json").out)
    assert [(entry["name"], entry["from"]) for entry in listed if entry["kind"] == "yours"] == [
        ("broken", "suites/broken.yaml"),
        ("renamed", "suites/copy.yaml"),
        ("tiny", "suites/tiny.yaml"),
    ]
    assert harness("plan", "renamed").code == 0  # a name that is listed can be given
