"""The data of the site as CSV, with unrounded numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.records.record import CurvePoint
from harness.report.leaderboard import board
from harness.report.leaderboard.all_suites import Leaderboard
from harness.report.study import Study
from harness.report.table import formats

if TYPE_CHECKING:
    import pandas as pd


def trials(found: Sequence[Study]) -> str:
    """One line for each planned trial of all suites: its settings, status and metrics."""
    import pandas as pd  # here: it takes a second to import

    frames = [each.frame().dropna(axis="columns", how="all") for each in found]
    for frame, each in zip(frames, found, strict=True):
        frame.insert(0, "suite", each.suite.name)
    return _csv(pd.concat(frames, ignore_index=True))


def curves(found: Sequence[Study]) -> str:
    """One line for each epoch of each trial that has a record."""
    import pandas as pd

    lines = [
        {"suite": each.suite.name, "id": record.id, "head": str(record.spec.head), "seed": record.spec.seed}
        | point.model_dump()
        for each in found
        for record in each.records.values()
        for point in record.curve
    ]
    return _csv(pd.DataFrame(lines, columns=["suite", "id", "head", "seed", *CurvePoint.model_fields]))


def leaderboard(found: Leaderboard) -> str:
    """One line for each row of the leaderboard; `table` says which rows compare with each other."""
    import pandas as pd

    frames = []
    for group in found.groups:
        table = board.table(group)
        frame = formats.frame(table)
        frame.insert(0, "table", table.title)
        frames.append(frame)
    return _csv(pd.concat(frames, ignore_index=True))


def _csv(frame: "pd.DataFrame") -> str:
    """As CSV in which no text is a formula for a spreadsheet."""
    safe = frame.map(lambda value: formats.harmless(value) if isinstance(value, str) else value)
    return safe.to_csv(index=False, lineterminator="\n")
