"""docs/suites.md shows every key of docs/suite_keys.md, which is generated; its examples are accepted."""

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from harness.plan.suite_file import SuiteFile

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "suites.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "suite_keys.md").read_text(encoding="utf-8")
KEYS = dict(re.findall(r"^- `([a-z_.]+)` \(.*?\): (.*)$", REFERENCE, flags=re.MULTILINE))


def test_every_key_has_a_meaning():
    assert len(KEYS) > 50
    assert [key for key, meaning in KEYS.items() if len(meaning.split()) < 2] == []


def examples() -> list[str]:
    """The suites and parts of suites that the page shows."""
    return re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)


def test_every_key_stands_in_an_example():
    text = "\n".join(examples())
    names = {key.rpartition(".")[2] for key in KEYS}
    assert {name for name in names if not re.search(rf"\b{name}:", text)} == set()


@pytest.mark.parametrize("text", examples())
def test_every_example_is_accepted(text):
    complete = {
        **{"name": "example", "version": 1, "seeds": [1]},
        **{"corpora": ["ptb"], "backbones": ["lstm"], "heads": ["softmax"]},
        "train": {"optimizer": "sgd", "lr": 1.0, "epochs": 1, "batch_size": 20, "seq_len": 35},
    }
    data = YAML(typ="safe").load(text)
    given = data.get("train", {})
    optimizer = {} if "momentum" in given else {"optimizer": "adam"}
    train = {name: value for name, value in complete["train"].items() if name != "epochs" or "tokens" not in given}
    merged = {**complete, **data, "train": {**train, **optimizer, **given}}
    try:
        SuiteFile.model_validate_json(json.dumps(merged))
    except ValidationError as error:
        pytest.fail(f"{text}\n{error}")


def test_every_suite_of_the_repository_is_listed():
    assert {path.stem for path in (ROOT / "suites").glob("*.yaml")} <= set(re.findall(r"`(\w+)`", PAGE))
