"""The table of all heads, heads.yaml: rows of an entry and of the groups that it names."""

import math
from fractions import Fraction
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
    """(head, what a row has ..) of all rows of that section; of a mapping (head, key, what its value has ..)."""
    found = []
    for name, entry in ENTRIES.items():
        for source in (*(TABLE["groups"][group] for group in entry.get("like", ())), entry):
            given = source.get(section, ())
            if isinstance(given, dict):
                given = [(key, *_row(value)) for key, value in given.items()]
            elif isinstance(given, str):
                given = [given]
            found += [(name, *_row(row)) for row in given]
    return found


def _row(row) -> tuple:
    return row if isinstance(row, tuple) else (row,)


def refused() -> list[tuple[str, dict, str]]:
    """(head, parameters, message)."""
    found = rows("refused_together")
    for name, parameter, message, *values in rows("refused"):
        found += [(name, {parameter: value}, message.replace("{}", str(value))) for value in values]
    return found


def usual(name: str, given: dict) -> dict:
    """What a head is made with in the rows of `refused` and `accepted`."""
    return {"layer_dims": (9, 6), **widths(name), **ENTRIES[name].get("usual", {}), **given}


def widths(name: str) -> dict:
    """The widths of its layers, where they are not the usual ones."""
    return {key: value for key, value in ENTRIES[name].items() if key == "layer_dims"}


def total(formula: str, **sizes: int) -> Fraction:
    """A sum of products, as in 'V E + 4/5 E'."""
    return sum(math.prod(Fraction(sizes.get(each, each)) for each in term.split()) for term in formula.split(" + "))


def signature(name: str) -> list[str]:
    """Its parameters, one by one."""
    text = ENTRIES[name]["signature"]
    for short, written in TABLE["signatures"].items():
        text = text.replace(short, written)
    return text.split("; ")
