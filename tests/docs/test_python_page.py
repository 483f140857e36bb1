"""docs/python.md: what it calls exists."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import harness

PAGE = (Path(__file__).parent.parent.parent / "docs" / "python.md").read_text(encoding="utf-8")


def test_every_function_of_harness_exists():
    named = set(re.findall(r"\bharness\.([a-zA-Z_]+)\(", PAGE)) | {"RunOptions"}
    assert {"run_suite", "load_study"} <= named <= set(harness.__all__)


def test_every_method_and_argument_of_a_study_exists():
    from harness.report.study import Study

    calls = re.findall(r"\bstudy\.([a-z_]+)(?:\(([^)]*)\))?", PAGE)
    assert {name for name, _ in calls if not hasattr(Study, name)} <= {field.name for field in fields(Study)}
    for name, arguments in calls:
        given = set(re.findall(r"\b([a-z]+)=", re.sub(r'"[^"]*"', "", arguments)))
        assert given <= set(inspect.signature(getattr(Study, name)).parameters if given else ())


def test_options_are_those_of_a_run():
    from harness import RunOptions

    assert {"executor", "overrides", "only"} <= {field.name for field in fields(RunOptions)}
