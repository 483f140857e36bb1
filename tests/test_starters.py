"""`harness new` and `schema`: the files that they write work as they are."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import torch
from commands import PATIENCE, WITHOUT_GPU

from harness import plan
from harness.model import build
from harness.plan.reader import read
from harness.plan.specs import ComponentSpec
from harness.plan.suite_file import schema_text, suite_schema
from harness.registry import HEADS

pytestmark = pytest.mark.system

ROOT = Path(__file__).parent.parent


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
    tree = ast.parse(starters.write(kind, name).read_text())
    (made,) = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert made == expected
    assert made not in {alias.name for node in imports for alias in node.names}


def test_a_new_head_starts_with_the_output_layer_of_the_other_heads(empty, monkeypatch):
    HEADS.names()
    monkeypatch.setattr(HEADS, "_classes", dict(HEADS._classes))
    made = starters.write("head", "fresh")
    monkeypatch.syspath_prepend(str(made.parent))
    importlib.import_module("fresh")
    sizes = {"vocab_size": 23, "seed": 1, "token_counts": torch.ones(23, dtype=torch.long)}
    backbone = ComponentSpec(name="lstm", params={"d_model": 8})
    heads = [ComponentSpec(name="softmax"), ComponentSpec(name="fresh", params={"d_latent": 8})]
    softmax, ours = (build(backbone, head, **sizes).head.output for head in heads)
    assert torch.equal(ours.weight, softmax.weight)
    assert torch.equal(ours.bias, softmax.bias)


def test_a_new_suite_is_planned_and_fits_the_schema(empty, harness):
    done = harness("new", "suite", "mine")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "suite mine: suites/mine.yaml",
        "next: harness plan mine, harness run mine --dry-run, harness run mine",
        "editors complete its keys with the schema: harness schema > suites/schema.json",
    ]
    suite = plan.load("mine")
    assert (suite.name, len(suite.trials), suite.table.baseline) == ("mine", 15, "softmax(projection=True)")
    assert harness("plan", "mine").code == 0
    data, _ = read(Path("suites/mine.yaml"))
    jsonschema.Draft202012Validator(suite_schema()).validate(data)


def test_the_tuning_that_the_new_suite_has_in_a_comment_works_too(empty, harness):
    harness("new", "suite", "mine")
    path = Path("suites/mine.yaml")
    text = path.read_text()
    assert "\n# tune:" in text
    path.write_text(text.replace("\n# tune:", "\ntune:"))
    assert harness("plan", "mine").code == 0


def test_a_new_suite_can_be_tried(empty, harness):
    harness("new", "suite", "mine")
    done = harness("run", "mine", "--dry-run", "--device", "cpu")
    assert (done.code, done.out.count("ok    ")) == (0, 5), done.err


def test_no_suite_is_replaced(empty, harness):
    harness("new", "suite", "mine")
    Path("suites/mine.yaml").write_text("mine")
    done = harness("new", "suite", "mine")
    assert (done.code, done.out) == (2, "")
    assert done.err == "suites/mine.yaml exists already; choose another name, or remove the file\n"
    assert Path("suites/mine.yaml").read_text() == "mine"


@pytest.mark.parametrize("name", ["../mine", "My Suite", "", "-x", "a/b", "leaderboard", "x" * 65, "mine.yaml"])
def test_a_bad_name_of_a_suite_is_a_sentence(empty, name, harness):
    done = harness("new", "suite", "--", name)
    assert (done.code, done.out) == (2, "")
    assert "cannot be the name of a suite: expected lower-case letters" in done.err
    assert list(empty.iterdir()) == []


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
    Path("suites").write_text("a file")
    done = harness("new", "suite", "mine")
    assert (done.code, done.err) == (2, "suites/mine.yaml cannot be written: File exists\n")


def test_the_schema_is_printed(harness):
    done = harness("schema")
    assert (done.code, done.err, done.out) == (0, "", schema_text())
