"""The JSON schema of suite files, by which editors complete keys and show their meaning (`harness schema`).

It is made of the pydantic types that check a suite, and of their docstrings. It accepts every suite that `load`
accepts. The reverse does not hold: names and parameters of components, and rules between several keys, are checked by
`load` only.
"""

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

from harness.plan.strict import Strict
from harness.plan.suite_file import OF_TRAINING, SuiteFile

DRAFT = "https://json-schema.org/draft/2020-12/schema"
ARGUMENT = re.compile(r"^    (\w+(?:, \w+)*): (.+(?:\n {8}.+)*)", re.MULTILINE)
REFERRING = "as in "  # how a description begins that is given elsewhere


def suite_schema() -> dict[str, Any]:
    """Return the schema of suite files: keys, types, limits, defaults and descriptions."""
    schema = SuiteFile.model_json_schema()
    classes = {cls.__name__: cls for cls in _subclasses(Strict)}
    for name, part in {SuiteFile.__name__: schema, **schema["$defs"]}.items():
        if name in classes:
            _describe(part, classes[name])
    required = set(schema["required"])
    schema["required"] = sorted(required - OF_TRAINING)
    schema["anyOf"] = [{"required": sorted(required & OF_TRAINING)}, {"required": ["ngrams"]}]
    return {"$schema": DRAFT, **schema, "title": "A suite of output-head-harness"}


def schema_text() -> str:
    """Return the content of suites/schema.json."""
    return f"{json.dumps(suite_schema(), indent=1)}\n"


def _subclasses(cls: type) -> Iterator[type]:
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)


def _describe(part: dict[str, Any], cls: type) -> None:
    """Put the descriptions of a class's docstring into its schema, in place of the titles that pydantic makes."""
    texts = descriptions(cls)
    for node in (part, *part.get("anyOf", [])):
        for name, key in node.get("properties", {}).items():
            key.pop("title", None)
            if name in texts:
                key["description"] = texts[name]
        node.pop("title", None)
        node.pop("description", None)
    part["description"] = " ".join(inspect.cleandoc(cls.__doc__).partition("\n\n")[0].split())


def descriptions(cls: type) -> dict[str, str]:
    """Return field -> its description under `Args:` in the docstring of the class, or else of a class that it is made
    from.
    """
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        arguments = inspect.cleandoc(each.__doc__ or "").partition("Args:\n")[2]
        for names, text in ARGUMENT.findall(arguments):
            for name in names.split(", "):
                if not text.startswith(REFERRING):
                    found[name] = " ".join(text.split())
    return found
