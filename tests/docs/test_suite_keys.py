"""docs/suites.md names every key of a suite file with its type and default, as the schema in harness/plan has them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from harness.plan.suite_file import SuiteFile

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "suites.md").read_text(encoding="utf-8")
SCHEMA = SuiteFile.model_json_schema()
OF_COMPONENTS = {"corpora", "backbones", "heads"}  # their entries are checked against the registries
LIMITS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """A schema without its reference."""
    while "$ref" in node:
        node = {**SCHEMA["$defs"][node["$ref"].rpartition("/")[2]], **{k: v for k, v in node.items() if k != "$ref"}}
    return node


def type_text(node: dict[str, Any], section: str = "") -> str:
    """A schema in words: 'number, > 0, or null'."""
    node = resolved(node)
    if section in OF_COMPONENTS:
        return "list of components"
    if "anyOf" in node:
        return " or ".join(type_text(option) for option in node["anyOf"])
    if "enum" in node:  # true, and "true" as a text, are written alike
        return " or ".join(dict.fromkeys(f"`{str(value).lower()}`" for value in node["enum"]))
    if "const" in node:
        return f"`{node['const']}`"
    kind = node.get("type")
    if kind == "array":
        if "prefixItems" in node:
            return f"list of {len(node['prefixItems'])}: {type_text(node['prefixItems'][0])}"
        return f"list of {type_text(node['items'])}"
    word = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`", "null": "`null`"}
    limits = [f"{sign} {node[name]:g}" for name, sign in LIMITS.items() if name in node and node[name] < 2**60]
    text = {"string": "text", "object": "mapping", **word}[kind]
    return f"{text} {' and '.join(limits)}" if limits else text


def default_text(node: dict[str, Any]) -> str:
    """A default as a suite file would say it; a list has no other default than the empty one."""
    default = node.get("default", [])
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def leaves(node: dict[str, Any], place: tuple[str, ...] = (), within: str = "") -> list[tuple[str, str, str]]:
    """(key, type, default) of every value that a suite file may hold. `within`: the optional mapping around the key."""
    found = []
    for name, child in node["properties"].items():
        key = (*place, name)
        options = [resolved(option) for option in resolved(child).get("anyOf", [child])]
        mappings = [option for option in options if "properties" in option]
        if mappings:
            optional = len(options) > len(mappings)
            found += leaves(mappings[0], key, ".".join(key) if optional else within)
            continue
        required = f"required in `{within}`" if within else "required"
        default = required if name in node.get("required", ()) else default_text(resolved(child))
        found.append((".".join(key), type_text(child, name), default))
    return found


def rows() -> dict[str, tuple[str, str, str]]:
    """Key -> type, default and meaning, as the page has them."""
    cells = re.findall(r"^\| `([a-z_.]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, flags=re.MULTILINE)
    assert len({key for key, *_ in cells}) == len(cells)
    return {key: tuple(rest) for key, *rest in cells}


def test_the_page_has_every_key_with_its_type_and_default_and_no_other():
    shown = [(key, kind, default) for key, (kind, default, _) in rows().items()]
    assert sorted(shown) == sorted(leaves(SCHEMA))


def test_every_key_has_a_meaning():
    assert [key for key, (*_, meaning) in rows().items() if len(meaning.split()) < 3] == []


def examples() -> list[str]:
    """The suites and parts of suites that the page shows."""
    return re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)


def test_every_key_stands_in_an_example():
    text = "\n".join(examples())
    names = {key.rpartition(".")[2] for key, *_ in leaves(SCHEMA)}
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
