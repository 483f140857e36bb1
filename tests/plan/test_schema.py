"""The JSON schema of suites: the committed file is that of the code, and it accepts what `load` accepts."""

import ast
import re
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest
from commands import SUITE

from harness.errors import HarnessError
from harness.plan import load
from harness.plan.reader import read
from harness.plan.specs import TrainSpec
from harness.plan.suite_file import TrainFile, descriptions, schema_text, suite_schema

ROOT = Path(__file__).parent.parent.parent
SUITES = sorted((ROOT / "suites").glob("*.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(suite_schema())
MODELINE = "# yaml-language-server: $schema=schema.json"


def suites_of_the_tests() -> list[str]:
    """The texts within the tests that are whole suites: YAML with the key `corpora` at its margin, and no gaps."""
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                keys = re.findall(r"^([a-z]+):", node.value, flags=re.MULTILINE)
                if {"corpora", "heads", "train", "seeds"} <= set(keys):
                    found.append(node.value)
    return found


def problems(path: Path) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(read(path)[0])]


def test_the_committed_file_is_the_schema_of_the_code():
    jsonschema.Draft202012Validator.check_schema(suite_schema())
    committed = (ROOT / "suites" / "schema.json").read_text(encoding="utf-8")
    assert committed == schema_text(), "write it again: harness schema > suites/schema.json"


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_every_suite_of_the_repository_fits_and_names_the_schema(path):
    assert problems(path) == []
    assert path.read_text(encoding="utf-8").startswith(f"{MODELINE}\n")


def test_every_suite_of_the_tests_that_can_be_loaded_fits(write):
    texts = suites_of_the_tests()
    assert SUITE in texts
    assert len(texts) > 10
    accepted = 0
    for text in texts:
        with suppress(HarnessError):  # a suite with mistakes, or one that needs other files
            load(write(text))
            accepted += 1
            assert problems(write(text)) == [], text
    assert accepted > 5


def test_every_key_has_a_description():
    schema = suite_schema()
    nodes = [schema, *schema["$defs"].values(), *schema["$defs"]["Axis"]["anyOf"]]
    keys = [(name, key) for node in nodes for name, key in node.get("properties", {}).items()]
    without = [name for name, key in keys if len(key.get("description", "")) < 10]
    assert [name for name in without if name not in ("step", "plateau", "warmup", "after", "factor")] == []


FITS = {  # a text of SUITE -> what stands in its place, and what is then wrong; '' for nothing
    "[1, 2]": [
        ("[1, 2]\nngrams: [3, {order: 5, cache: true}]", ""),
        ("[1, 2]\ntune: {epochs: 1, space: {train.lr: [0.01, 0.1]}}", ""),
        ("[1, 2]\ntune: {trials: 2, epochs: 1, space: {train.lr: {log_uniform: [0.01, 0.1]}}}", ""),
        ("[1, 2]\nmatch: {params: 1000, vary: d_model}", ""),
        ("[1, 2]\ntune: {epochs: 1, space: {train.lr: {grid: [1]}}}", "is not valid under any"),
    ],
    "seq_len: 7": [("seq_len: 7, deterministic: true", ""), ("seq_len: 7, deterministic: warn", "")],
    "{baseline: softmax}": [("{baseline: null, compare: [benka2021/2, benka2021/1]}", "")],
    "lr: 0.01": [("lr: 1e-2", ""), ("lr: fast", "'fast' is not of type 'number'")],
    "epochs: 2": [("epoch: 2", "'epoch' was unexpected")],
    "version: 1": [("verison: 1", "'verison' was unexpected")],
    "adam": [("adagrad", "'adagrad' is not one of")],
    "batch_size: 4": [("batch_size: 0", "0 is less than the minimum of 1")],
    "[softmax, ": [("[{softmax: {}, mos: {}}, ", "is not valid under any of the given schemas")],
    "lr: 0.01, ": [("", "'lr' is a required property")],
}


@pytest.mark.parametrize("old", FITS)
def test_what_a_suite_may_say_fits_and_a_mistake_does_not(write, old):
    assert old in SUITE
    for new, word in FITS[old]:
        found = problems(write(SUITE.replace(old, new)))
        assert any(word in each for each in found) if word else not found, (new, found)


def test_a_description_is_the_docstrings_and_of_the_nearest_class():
    assert descriptions(TrainFile)["clip"] == "the largest 2-norm of the whole gradient, or None for no limit."
    assert descriptions(TrainFile)["lr"] == descriptions(TrainSpec)["lr"]
    assert descriptions(TrainFile)["tokens"].startswith("the number of targets to train on, in all epochs together; ")
