"""What a suite leaves out and no fixed default can say: its name, and the head that the others are compared with."""

import re
from pathlib import Path
from typing import Any

from harness.plan.comparison import TableSpec
from harness.plan.components import Component
from harness.plan.parameters import resolved
from harness.plan.specs import SUITE_NAME

PLAIN = "softmax"


def give_name(data: dict[str, Any], path: Path) -> list[str]:
    """Give a suite without a name that of its file, without the ending. Return the problem if there is one."""
    if data.get("name") is not None:
        return []
    if re.fullmatch(SUITE_NAME, path.stem):
        data["name"] = path.stem
        return []
    return [
        f"{path}:1:1: the key 'name' is missing, and the name of the file, '{path.stem}', cannot take its place: "
        "expected lower-case letters, digits, _ and -, at most 64"
    ]


def with_baseline(table: TableSpec, heads: list[Component]) -> TableSpec:
    """Return the settings of the table with the baseline of a suite that does not give one.

    It is the head that the plan prints as `softmax`; without one, the only softmax that has no projection. A softmax
    with a projection is a head of its own in the papers, and of several softmaxes with other parameters none is the
    obvious one: these suites have no baseline until they name it. Neither has a suite of one head.
    """
    if "baseline" in table.model_fields_set:
        return table
    texts = list(dict.fromkeys(str(each.spec) for each in heads))
    plain = {
        str(each.spec): None
        for each in heads
        if each.spec.name == PLAIN and not resolved(each.cls, each.spec.params).get("projection")
    }
    only = next(iter(plain)) if len(plain) == 1 else None
    found = PLAIN if PLAIN in plain else only
    return table.model_copy(update={"baseline": found if len(texts) > 1 else None})
