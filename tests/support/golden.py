"""The tables of tests/golden, and texts in them that are too long to be written out."""

import re
from pathlib import Path

from ruamel.yaml import YAML

FOLDER = Path(__file__).parents[1] / "golden"


def read(name: str):
    """A table by its name there: 'ids', 'messages/corpora/texts'."""
    return YAML(typ="safe").load(FOLDER / f"{name}.yaml")


def written_out(text: str) -> str:
    """A text with each '<9*100>' replaced by a hundred nines."""
    return re.sub(r"<([^<>]+?)\*(\d+)>", lambda found: found[1] * int(found[2]), text)
