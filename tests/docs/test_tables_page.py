"""docs/tables.md explains every mark of a table."""

import re
from pathlib import Path

from harness.report import findings, versions

PAGE = (Path(__file__).parent.parent.parent / "docs" / "tables.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    (found,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", PAGE, flags=re.DOTALL | re.MULTILINE)
    return found


def test_every_mark_is_explained():
    marks = {value for each in (findings, versions) for name, value in vars(each).items() if name.endswith("_MARK")}
    assert len(marks) >= 6
    assert {mark for mark in marks if f"| `{mark}` |" not in section("Marks")} == set()
