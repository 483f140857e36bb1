"""The tables of `harness runs`: suites and trials."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.filesize import decimal
from rich.text import Text

from harness.cli.factored import Shown, by_name, fitting
from harness.cli.screen import span
from harness.records.plausible import moment

if TYPE_CHECKING:  # the list of runs waits for none of this
    from harness.report.history import SuiteHistory, TrialHistory

TOKEN_SCORES = {True: "kept", False: "no token scores", None: "-"}


def suites(rows: "Iterable[SuiteHistory]", width: int | None) -> Shown:
    """A row for each suite: its records by status, and the time they took.

    Args:
        width: characters of the terminal; None: all columns.
    """
    cells = []
    for row in rows:
        counts = [f"{count} {status}" for status, count in row.records.items()]
        counts += [f"{row.interrupted} interrupted"] if row.interrupted else []
        times = [span(row.device_minutes), "-" if row.wall_minutes is None else span(row.wall_minutes)]
        about = [_utc(row.finished), decimal(row.bytes), ", ".join(row.devices) or "-"]
        cells.append([row.suite, ", ".join(counts) or "none", *times, *about])
    kept = ("suite", "records", "device time", "wall time")
    right = ("device time", "wall time", "disk")
    columns = by_name((*kept, "last finished (UTC)", "disk", "devices"), cells)
    yield from fitting(columns, kept=kept, right=right, width=width)
    yield Text("device time: training, summed over trials; wall time: from the first start to the last end")


def trials(rows: "Iterable[TrialHistory]", width: int | None) -> Shown:
    """A row for each trial that has a record; the status of a tuning trial is like 'ok, tuning'.

    Args:
        width: characters of the terminal; None: all columns.
    """
    cells = []
    for row in rows:
        measured = [f"{value:.2f}" if value is not None else "-" for value in (row.test_ppl, row.minutes)]
        status = f"{row.status}, tuning" if row.tuning else row.status
        about = [row.id, row.head, row.corpus, str(row.seed), status, *measured]
        stored = [decimal(row.bytes), TOKEN_SCORES[row.token_scores]]
        cells.append([*about, _utc(row.finished), row.backbone, row.device, *stored])
    kept = ("trial", "head", "corpus", "seed", "status", "test ppl", "minutes")
    right = ("seed", "test ppl", "minutes", "disk")
    names = (*kept, "finished (UTC)", "backbone", "device", "disk", "token scores")
    yield from fitting(by_name(names, cells), kept=kept, right=right, width=width)


def _utc(finished: str | None) -> str:
    """'2026-01-02 03:04'."""
    return "-" if finished is None else f"{moment(finished):%Y-%m-%d %H:%M}"
