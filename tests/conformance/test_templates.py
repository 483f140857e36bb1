"""`harness new head` and `new backbone`, and `harness schema`: what they write works as it is."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import PATIENCE, WITHOUT_GPU

from harness.model import build
from harness.plan.specs import ComponentSpec
from harness.plan.suite_file import schema_text
from harness.registry import HEADS
from harness.starters import templates

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def there(tmp_path):
    """A function that runs a command in an empty folder, in a process of its own."""
    folder, environment = tmp_path, {**os.environ, **WITHOUT_GPU}

    def call(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "harness.cli", *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)

    call.folder = folder
    return call


@pytest.mark.parametrize(
    ("kind", "folder", "name"),
    [("head", "heads", "mixture"), ("backbone", "backbones", "hidden")],  # the files import Mixture and Hidden
)
def test_a_new_component_passes_its_checks_and_the_linter(there, kind, folder, name):
    done = there("new", kind, name)
    place = there.folder / folder / f"{name}.py"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{kind} {name}: {folder}/{name}.py",
        f"next: harness check {name}, then name it in a suite: - {name}",
    ]
    checked = there("check", name)
    assert checked.returncode == 0, checked.stdout
    assert f"{kind} {name}: " in checked.stdout
    settings = ["--config", str(ROOT / "pyproject.toml")]
    for command in (["check"], ["format", "--check"]):
        linted = subprocess.run([sys.executable, "-m", "ruff", *command, *settings, str(place)], capture_output=True)
        assert linted.returncode == 0, linted.stdout.decode()
    text = place.read_text()
    again = there("new", kind, name)
    assert (again.returncode, again.stdout) == (2, "")
    assert f"there is a {kind} '{name}' already: {place}" in again.stderr
    assert place.read_text() == text


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("head", "mixture", "MixtureHead"),
        ("head", "my_head", "MyHead"),
        ("head", "head", "Head"),
        ("head", "overhead", "OverheadHead"),
        ("backbone", "hidden", "HiddenBackbone"),
        ("backbone", "my_backbone", "MyBackbone"),
    ],
)
def test_the_class_has_a_name_that_the_file_does_not_import(empty, monkeypatch, kind, name, expected):
    tree = ast.parse(templates.write(kind, name).read_text())
    (made,) = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert made == expected
    assert made not in {alias.name for node in imports for alias in node.names}


def test_a_new_head_starts_with_the_output_layer_of_the_other_heads(empty, monkeypatch):
    HEADS.names()
    monkeypatch.setattr(HEADS, "_classes", dict(HEADS._classes))
    made = templates.write("head", "fresh")
    monkeypatch.syspath_prepend(str(made.parent))
    importlib.import_module("fresh")
    sizes = {"vocab_size": 23, "seed": 1, "token_counts": torch.ones(23, dtype=torch.long)}
    backbone = ComponentSpec(name="lstm", params={"d_model": 8})
    heads = [ComponentSpec(name="softmax"), ComponentSpec(name="fresh", params={"d_latent": 8})]
    softmax, ours = (build(backbone, head, **sizes).head.output for head in heads)
    assert torch.equal(ours.weight, softmax.weight)
    assert torch.equal(ours.bias, softmax.bias)


@pytest.mark.parametrize("kind", ["head", "backbone"])
@pytest.mark.parametrize("name", ["../mine", "Mine", "my-own", "1st", "", "class", "true", "null", "_own", "x" * 41])
def test_a_bad_name_of_a_component_is_a_sentence(empty, monkeypatch, harness, kind, name):
    done = harness("new", kind, "--", name)
    assert (done.code, done.out) == (2, "")
    assert f"cannot be the name of a {kind}: expected a name of Python" in done.err
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "name", "place"),
    [
        ("head", "mos", "heads/mos.py"),
        ("head", "kneser_ney", "heads/kneser_ney.py"),
        ("backbone", "gru", "backbones/lstm.py"),
    ],
)
def test_a_name_that_is_taken_is_said(empty, monkeypatch, harness, kind, name, place):
    done = harness("new", kind, name)
    assert (done.code, f"there is a {kind} '{name}' already: {place}" in done.err) == (2, True)


def test_a_folder_that_cannot_be_written_is_a_sentence(empty, harness):
    Path("heads").write_text("a file")
    done = harness("new", "head", "mine")
    assert (done.code, done.err) == (
        2,
        "heads/mine.py cannot be written (File exists); move away the file that stands where its folder should be\n",
    )


@pytest.mark.parametrize("given", [("--text", "a.txt"), ("--model", "models/mine")])
def test_a_component_has_no_text_and_no_model(empty, harness, given):
    done = harness("new", "head", "mine", *given)
    assert (done.code, done.err) == (2, "harness new head: --text and --model are of a suite\n")
    assert list(empty.iterdir()) == []


def test_the_schema_is_printed(harness):
    done = harness("schema")
    assert (done.code, done.err, done.out) == (0, "", schema_text())
