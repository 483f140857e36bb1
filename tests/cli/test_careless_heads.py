"""Mistakes of the author of a head: what `check`, `list`, `plan` and `run` say about a file in heads/."""

import importlib
import json
import sys

import pytest
from commands import mistakes

import harness.backbones
import harness.heads
from harness.registry import BACKBONES, HEADS

HEAD = '''\
"""A head of the user's own."""

import torch
from torch import nn

from harness.distributions import Logits, Mixture
from harness.registry import HEADS


@HEADS.register("mine")
class Mine(nn.Module):
    """log p = log_softmax(W h)."""

    def __init__(self, dims, embedding, *, scale: float = 1.0):
        super().__init__()
        self.weight = nn.Parameter(scale * torch.randn(dims.vocab_size, dims.layer_dims[-1]))

    def forward(self, hidden):
        h_BTD = hidden.layers[-1]
        return Mixture(h_BTD.unsqueeze(2), None, self.weight)
'''
RETURNED = "return Mixture(h_BTD.unsqueeze(2), None, self.weight)"
MISTAKES = [
    ("class Mine(nn.Module)" if written.startswith("class") else RETURNED, written, says)
    for written, says in mistakes("own")
]


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A function: name and content of a file of a folder that counts as a part of heads/ (or of backbones/), in a
    process in which the registries have not been asked yet.
    """
    packages = {"heads": (harness.heads, HEADS), "backbones": (harness.backbones, BACKBONES)}
    for folder, (package, registry) in packages.items():
        registry.names()
        (tmp_path / folder).mkdir()
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / folder)])
        for name in ("_classes", "_modules", "_twice"):
            monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
        monkeypatch.setattr(registry, "_faults", [])

    def write(name, content, folder="heads"):
        place = tmp_path / folder / f"{name}.py"
        place.write_text(content)
        importlib.invalidate_caches()
        monkeypatch.setattr(packages[folder][1], "_discovered", False)
        return place

    before = set(sys.modules)
    yield write
    for module in set(sys.modules) - before:
        if module.startswith(("harness.heads.", "harness.backbones.")):
            _, folder, name = module.split(".")
            del sys.modules[module]
            vars(packages[folder][0]).pop(name, None)


def changed(before, after):
    assert before in HEAD
    return HEAD.replace(before, after)


def test_the_head_without_a_mistake_passes(own, harness):
    own("mine", HEAD)
    done = harness("check", "mine")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("head mine: 13 of 13 checks passed\n")


@pytest.mark.needs("conformance")
@pytest.mark.parametrize(("place", "written", "expected"), MISTAKES)
def test_check_says_what_is_wrong_once_and_stops_there(own, harness, place, written, expected):
    from harness.conformance.heads import HEAD_CHECKS

    own("mine", changed(place, written))
    done = harness("check", "mine")
    assert (done.code, done.err) == (1, "")
    first, not_run, last = done.out.splitlines()
    assert first.startswith("FAIL  ")
    assert expected in first
    left = len(HEAD_CHECKS) - (1 if "shapes" in first else 0)  # without: it cannot be built
    assert not_run.strip() == f"not run: {left} later checks of this variant, which this failure explains"
    assert last == "head mine: 0 of 1 check passed"


def test_a_parameter_that_no_suite_could_set_is_refused(own, fresh, harness):
    place = own("mine", changed("*, scale: float = 1.0", "scale"))
    written = "its parameter 'scale' must be keyword-only: write (self, dims, embedding, *, scale)"
    sentence = f"head 'mine' of {place}: {written}"
    assert harness("check", "mine").err == f"{sentence}\n"
    planned = harness("plan", "suites/tiny.yaml", "--set", "heads=[mine]")
    assert planned.code == 2
    assert f"heads.0: {sentence}\n" in planned.err
    assert f"broken: {sentence}" in {parameter for row in listed(harness) for parameter in row["parameters"]}


def listed(harness):
    done = harness("list", "heads", "--json")
    assert done.code == 0
    return json.loads(done.out)


@pytest.mark.parametrize("command", [("list", "heads"), ("plan", "suites/tiny.yaml")])
def test_a_file_that_cannot_be_used_is_one_warning(own, fresh, harness, command):
    place = own("mine", changed("forward(self, hidden):", "forward(self, hidden)"))
    done = harness(*command)
    assert done.code == 0
    assert done.err.startswith(f"warning: {place} cannot be imported: SyntaxError: expected ':'")
    assert done.err.count("\n") == 1


def test_a_suite_that_needs_the_head_of_a_broken_file_stops_and_names_the_file(own, fresh, harness):
    place = own("mine", changed("import torch\n", "import torhc\n"))
    done = harness("run", "suites/tiny.yaml", "--set", "heads=[softmax, mine]")
    assert done.code == 2
    reason = f"{place} cannot be imported: ModuleNotFoundError: No module named 'torhc' (line 3)"
    warning, problem, last = done.err.splitlines()
    assert warning == f"warning: {reason}"
    assert "unknown head 'mine'" in problem
    assert problem.endswith(f"; {reason}")
    assert last == "1 problem; nothing was run"
    assert not (fresh / "results").exists()
    done = harness("check", "mine")
    assert done.code == 2
    assert done.err.endswith(f"; {reason}\n")


BACKBONE = '''\
"""A backbone of the user's own."""

from torch import nn

from harness.protocols import Hidden
from harness.registry import BACKBONES


@BACKBONES.register("own")
class Own(nn.Module):
    """The embedding alone."""

    def __init__(self, vocab_size, *, width: int = 8):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.layer_dims = (width,)

    def forward(self, tokens, state=None):
        return Hidden((self.embedding(tokens),))
'''


def test_a_backbone_that_returns_a_tensor_is_an_error_that_says_what_to_return(own, fresh, harness, run):
    own("own", BACKBONE, "backbones")
    assert harness("check", "own").code == 0
    own("own_too", BACKBONE.replace("Hidden((self.embedding(tokens),))", "self.embedding(tokens)").replace(
        '"own"', '"own_too"'), "backbones")  # fmt: skip
    done = harness("check", "own_too")
    instead = "from forward; return Hidden((states,), state) of harness.protocols"
    assert f"shapes [defaults]: TypeError: the backbone returned a Tensor of shape (2, 6, 8) {instead}" in done.out
    assert run("--set", "backbones=[own_too]", "--only", "seed=1,head=softmax").code == 1
    (record,) = (fresh / "results" / "runs" / "tiny").glob("*/record.json")
    expected = f"TypeError: backbone own_too returned a Tensor of shape (4, 7, 8) {instead}"
    assert json.loads(record.read_text())["message"] == expected
