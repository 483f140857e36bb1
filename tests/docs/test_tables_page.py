"""docs/tables.md explains every mark of a table."""

import re
from pathlib import Path

from harness.report.content import MARKS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "tables.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    (found,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", PAGE, flags=re.DOTALL | re.MULTILINE)
    return found


def test_every_mark_is_explained():
    assert {mark for mark in MARKS if f"| `{mark}` |" not in section("Marks")} == set()
