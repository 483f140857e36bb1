"""The pages of heads, backbones and corpora have every component of this repository, with its parameters."""

import json
import re
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from harness.conformance.backbones import BACKBONE_CHECKS
from harness.conformance.heads import HEAD_CHECKS
from harness.plan.parameters import REQUIRED, Parameter, parameters
from harness.registry import BACKBONES, CORPORA, HEADS

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = {"heads": HEADS, "backbones": BACKBONES, "corpora": CORPORA}
OURS = ("heads/", "backbones/", "harness/")
COMPONENTS = [
    (page, name)
    for page, registry in PAGES.items()
    for name in registry.names()
    if registry.origin(name).startswith(OURS)
]


def section(page: str, name: str) -> str:
    """What stands under the heading of a component."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^### `{name}`[^\n]*\n(.*?)(?=^##|\Z)", text, flags=re.DOTALL | re.MULTILINE)
    return found


def expected(parameter: Parameter) -> str:
    """A parameter as the page has it: 'name: default', or 'name' where a suite must give it."""
    if parameter.default is REQUIRED:
        return parameter.name
    default = parameter.default
    return f"{parameter.name}: {default if isinstance(default, str) else json.dumps(default)}"


@pytest.mark.parametrize(("page", "name"), COMPONENTS)
def test_the_page_has_every_parameter_with_its_default_and_no_other(page, name):
    known = parameters(PAGES[page].get(name)).values()
    shown = re.findall(r"^- `([^`]+)`", section(page, name), flags=re.MULTILINE)
    assert shown == [expected(parameter) for parameter in known]


@pytest.mark.parametrize(("page", "name"), COMPONENTS)
def test_the_page_has_every_choice_of_a_parameter(page, name):
    text = section(page, name)
    for parameter in parameters(PAGES[page].get(name)).values():
        if get_origin(parameter.annotation) is Literal:
            assert {option for option in get_args(parameter.annotation) if f"`{option}`" not in text} <= {
                parameter.default
            }


@pytest.mark.parametrize("page", PAGES)
def test_the_page_has_no_component_that_does_not_exist(page):
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### `(\w+)`", text, flags=re.MULTILINE)) <= set(PAGES[page].names())


def test_the_page_of_heads_has_every_check_and_no_other():
    text = (DOCS / "heads.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| check \|.*\n\|---\|---\|\n((?:\|.*\n)+)", text, flags=re.MULTILINE)
    shown = [re.findall(r"^\| ([^|]+) \|", table, flags=re.MULTILINE) for table in tables]
    assert shown == [list(HEAD_CHECKS), list(BACKBONE_CHECKS)]
