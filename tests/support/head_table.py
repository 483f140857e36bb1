"""The table of all heads, heads.yaml: rows of an entry and of the groups that it names."""

import math
from collections.abc import Iterator
from pathlib import Path

from ruamel.yaml import YAML


def _tuples(value):
    """With tuples for lists, as a suite's parameters have them."""
    if isinstance(value, dict):
        return {key: _tuples(each) for key, each in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


TABLE = _tuples(YAML(typ="safe").load(Path(__file__).with_name("heads.yaml")))
ENTRIES = TABLE["heads"]


def rows(section: str) -> list[tuple]:
    """(head, what a row has ..) of all rows of that section, (head, key, value) where it is a mapping."""
    found = []
    for name, entry in ENTRIES.items():
        for source in (*(TABLE["groups"][group] for group in entry.get("like", ())), entry):
            given = source.get(section, ())
            for row in given.items() if isinstance(given, dict) else given:
                found.append((name, *(row if isinstance(row, tuple) else (row,))))
    return found


def refused() -> Iterator[tuple[str, dict, str]]:
    """(head, parameters, message)."""
    for name, parameter, (message, *values) in rows("refused"):
        for value in values:
            yield name, {parameter: value}, message.replace("{}", str(value))
    yield from rows("refused_together")


def usual(name: str, given: dict) -> dict:
    """What a head is made with in the rows of `refused` and `accepted`."""
    return {"layer_dims": (9, 6), **widths(name), **ENTRIES[name].get("usual", {}), **given}


def widths(name: str) -> dict:
    """The widths of its layers, where they are not the usual ones."""
    return {key: value for key, value in ENTRIES[name].items() if key == "layer_dims"}


def total(formula: str, **sizes: int) -> int:
    """A sum of products, as in 'V E + 3 E'."""
    return sum(math.prod(int(sizes.get(each, each)) for each in term.split()) for term in formula.split(" + "))


def signature(name: str) -> list[str]:
    """Its parameters, one by one."""
    text = ENTRIES[name]["signature"]
    for short, written in TABLE["signatures"].items():
        text = text.replace(short, written)
    return text.split("; ")
