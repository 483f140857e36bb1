"""The JSON schema of suites: the committed file is that of the code, and it accepts what `load` accepts."""

from pathlib import Path

import jsonschema
import pytest
from commands import SUITE

from harness.plan.reader import read
from harness.plan.suite_file import schema_text, suite_schema

ROOT = Path(__file__).parent.parent.parent
SUITES = sorted((ROOT / "suites").glob("*.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(suite_schema())
MODELINE = "# yaml-language-server: $schema=schema.json"


def problems(path: Path) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(read(path)[0])]


def test_the_committed_file_is_the_schema_of_the_code():
    jsonschema.Draft202012Validator.check_schema(suite_schema())
    committed = (ROOT / "suites" / "schema.json").read_text(encoding="utf-8")
    assert committed == schema_text(), "write it again: harness schema > suites/schema.json"


def test_every_suite_of_the_repository_fits_and_names_the_schema():
    assert {path.stem: found for path in SUITES if (found := problems(path))} == {}
    assert [path for path in SUITES if not path.read_text(encoding="utf-8").startswith(f"{MODELINE}\n")] == []


MISTAKES = [
    *[("epochs: 2", "epoch: 2", "'epoch' was unexpected"), ("adam", "adagrad", "'adagrad' is not one of")],
    ("lr: 0.01, ", "", "'lr' is a required property"),
    ("lr: 0.01", "lr: fast", "'fast' is not of type 'number'"),
    ("batch_size: 4", "batch_size: 0", "0 is less than the minimum of 1"),
    ("[softmax, ", "[{softmax: {}, mos: {}}, ", "is not valid under any of the given schemas"),
    ("[1, 2]", "[1, 2]\ntune: {epochs: 1, space: {train.lr: {grid: [1]}}}", "is not valid under any"),
]


@pytest.mark.parametrize(("old", "new", "word"), MISTAKES)
def test_a_mistake_does_not_fit(write, old, new, word):
    assert any(word in each for each in problems(write(SUITE.replace(old, new))))
