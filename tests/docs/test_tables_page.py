"""docs/tables.md explains every mark and every column of a table."""

import re
from pathlib import Path

from harness.records.metrics import METRICS
from harness.report import findings, versions

PAGE = (Path(__file__).parent.parent.parent / "docs" / "tables.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    (found,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", PAGE, flags=re.DOTALL | re.MULTILINE)
    return found


def test_every_mark_is_explained():
    marks = {value for each in (findings, versions) for name, value in vars(each).items() if name.endswith("_MARK")}
    assert len(marks) >= 6
    assert {mark for mark in marks if f"| `{mark}` |" not in section("Marks")} == set()


def test_every_metric_that_tables_have_is_explained():
    columns = section("Columns")
    labels = {metric.label for metric in METRICS.values() if metric.table != "never"} - {"inference ms/batch"}
    assert {label for label in labels if f"`{label}`" not in columns} == set()
    assert "`inference ms/batch (b=4)`" in columns
