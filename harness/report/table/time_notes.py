"""The notes under a table on its times: how and where ms/batch was taken."""

from collections.abc import Iterable

from harness.printable import counted
from harness.records.metrics import METRICS
from harness.records.sidecars import Timing
from harness.report.evidence.findings import SHARED_MARK, Findings
from harness.report.evidence.table_rows import Row
from harness.report.evidence.times import time_of
from harness.report.table.content import Note

COLUMNS = ("ms/batch",)  # that these notes are about
SHARED = f"{SHARED_MARK} taken while other work ran on the machine: compare such times within this table only."
NOTED_CORES = 0.05  # other work of fewer cores is rounded to 0.0


def notes(findings: Findings) -> list[str]:
    """Under which conditions ms/batch was taken: in each exclusive pass, or while trials trained."""
    timings, lines = findings.evidence.timings, findings.lines
    rows_of: dict[str | None, list[Row]] = {}  # the pass that a row's times are of; None: taken while it trained
    shared = False
    for row in lines:
        timed = [metric.name for metric in METRICS.values() if metric.timed]
        times = [time for name in timed if (time := time_of(row, name, timings)) is not None]
        for pass_id in dict.fromkeys(time.pass_id for time in times):
            rows_of.setdefault(pass_id, []).append(row)
        shared = shared or not all(time.exclusive for time in times)
    found = []
    for pass_id, rows in rows_of.items():
        whose = f"ms/batch of {_names(rows, lines)}" if len(rows_of) > 1 else "ms/batch"
        how = _while_training(rows, timings) if pass_id is None else _pass(pass_id, rows, timings)
        found.append(f"{whose}: {how}")
    return [Note(text, COLUMNS) for text in ([*found, SHARED] if shared else found)]


def row_name(row: Row, lines: list[Row]) -> str:
    """A row as notes name it: its head, with corpus and backbone where the table has several."""
    others = [kind for kind in ("corpus", "backbone") if len({getattr(line, kind) for line in lines}) > 1]
    return ", ".join([row.head, *(getattr(row, kind) for kind in others)])


def _names(rows: Iterable[Row], lines: list[Row]) -> str:
    return "; ".join(row_name(row, lines) for row in rows)


def _pass(name: str, rows: list[Row], timings: dict[str, Timing]) -> str:
    """The conditions of one exclusive pass."""
    taken = [each for each in _timings(rows, timings) if each.pass_id == name]
    one, rounds, batches = taken[0], {each.rounds for each in taken}, {each.batches for each in taken}
    busy = max((each.busy for each in taken if each.busy is not None), default=0.0)
    other_work = f"; other work used {busy:.1f} cores" if busy >= NOTED_CORES else ""
    return (
        f"median ± interquartile range, one model at a time after training, {_range(rounds)} rounds, {_range(batches)} "
        f"training batches a model, on {one.device}, {counted(one.threads, 'thread')}, torch {one.torch}, harness at "
        f"{one.commit}, {min(each.taken for each in taken)}{other_work}."
    )


def _while_training(rows: list[Row], timings: dict[str, Timing]) -> str:
    """How trials' own times were taken, and whether other work prevented an exclusive pass."""
    disturbed = [each.busy for each in _timings(rows, timings) if each.shared and each.busy is not None]
    why = f" In the exclusive pass, other work used {max(disturbed):.1f} cores." if disturbed else ""
    return f"of each trial while it trained, the mean over seeds.{why}"


def _timings(rows: list[Row], timings: dict[str, Timing]) -> list[Timing]:
    return [timings[trial.id] for row in rows for trial in row.trials if trial.id in timings]


def _range(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
