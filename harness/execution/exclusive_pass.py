"""After the trials of a run: one trial of each row is timed again while no other trial runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from harness.errors import HarnessError
from harness.execution.executors import LOCAL, Execution, executor
from harness.execution.progress.reporter import Reporter
from harness.machine import environment
from harness.printable import counted, sentence
from harness.records import sidecars, store
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing
from harness.trial.behaviour import is_outdated

LOCK = "timing"  # the name of the lock of a timing pass: two passes at the same time would slow each other down
LOCK_SECONDS = 10.0  # how long to wait for the lock of one trial

Row = tuple[str, str, str]  # corpus, backbone, head


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What a timing pass has to do.

    Args:
        records: the first 'ok' trial of each row; empty when nothing is to be timed.
        notes: sentences about rows that are not timed.
    """

    records: list[TrialRecord]
    notes: list[str]


def time_rows(execution: Execution, records: Mapping[str, TrialRecord], reporter: Reporter) -> bool:
    """Time one trial of each row when some row has no exclusive timing. All rows are timed then, because only the times
    of one pass can be compared. Nothing is timed before every trial has a record.

    An error is a warning, because the trials themselves are finished, and the next command tries again.

    Args:
        execution: of all trials of the table; `fresh`: time the rows again although they have timings.
        records: the trials' records.
    Returns: True when rows were timed.
    Raises: KeyboardInterrupt.
    """
    try:
        due = what_is_due(execution, records)
        for note in due.notes:
            reporter.say(note)
        if not due.records:
            return False
        runs = execution.tasks[0].runs
        with store.writing(runs, LOCK):
            latest, _ = store.load_all(runs, [task.id for task in execution.tasks])
            due = what_is_due(execution, latest)  # another command may have timed them meanwhile
            return bool(due.records) and _time(due.records, execution, reporter)
    except Exception as error:
        reporter.warn(f"the rows are not timed: {_first_line(error)}; the same command tries again")
        return False


def what_is_due(execution: Execution, records: Mapping[str, TrialRecord]) -> Due:
    """The records to time: none while a trial has no record, and none when every row has its timing.

    A row is timed on the device that trained it. On a cluster any node may do the timing, but all rows are to be timed
    on the same device.
    """
    tasks = execution.tasks
    rows = _rows(records[task.id] for task in tasks if task.id in records)
    data_parallel = {key for key, row in rows.items() if row[0].spec.train.data_parallel > 1}
    local = execution.address == LOCAL
    here = environment.device_name(torch.device("cuda" if execution.on_gpu else "cpu"))
    elsewhere = {key for key, row in rows.items() if local and row[0].environment.device != here}
    notes = []
    if data_parallel:
        notes.append("data-parallel trials are not timed alone: their times are those of their training")
    elif elsewhere:
        devices = ", ".join(sorted({rows[key][0].environment.device for key in elsewhere}))
        notes.append(
            f"not timed: {counted(len(elsewhere), 'model')} trained on {devices}, because this device is {here}"
        )
    to_time = [row for key, row in rows.items() if key not in data_parallel | elsewhere]
    timed_before = not tasks[0].fresh and _have_timings(tasks[0].runs, to_time, here if local else None)
    all_finished = all(task.id in records for task in tasks)
    return Due(records=[row[0] for row in to_time] if all_finished and not timed_before else [], notes=notes)


def _rows(records: Iterable[TrialRecord]) -> dict[Row, list[TrialRecord]]:
    """The 'ok' records by row. Outdated ones are left out: the code that belongs to their weights is gone."""
    rows: dict[Row, list[TrialRecord]] = {}
    for record in records:
        if record.status == "ok" and not is_outdated(record):
            spec = record.spec
            rows.setdefault((str(spec.corpus), str(spec.backbone), str(spec.head)), []).append(record)
    return rows


def _have_timings(runs: Path, rows: list[list[TrialRecord]], device: str | None) -> bool:
    """Whether each row has a timing, all of them from the same pass, and on this device if it is given."""
    devices, passes = set(), set()
    for row in rows:
        found, _ = sidecars.TIMING.load_all(runs, {record.id: record for record in row})
        if not found:
            return False
        latest = max(found.values(), key=lambda each: each.taken)
        devices, passes = devices | {latest.device}, passes | {latest.pass_id}
    return len(passes) <= 1 and len(devices | ({device} if device is not None else set())) <= 1


def _time(records: list[TrialRecord], execution: Execution, reporter: Reporter) -> bool:
    """Time these trials and save their timings. Returns True when there are timings."""
    reporter.say(f"timing {counted(len(records), 'model')}, one at a time ...")
    due = {record.id: record for record in records}
    execution = replace(execution.with_route(), tasks=[task for task in execution.tasks if task.id in due])
    found, faults = executor(execution).time_rows(execution, due)
    for fault in faults:
        reporter.warn(sentence(fault))
    for timing in found:
        _save(timing, execution.tasks[0].runs)
    reporter.say(_summary(found))
    return bool(found)


def _summary(found: list[Timing]) -> str:
    if not found:
        return "no model was timed"
    first = found[0]
    other = (
        f"; other programs use {first.busy:.1f} cores, so the times are marked as shared; --timing measures them again"
    )
    return f"timed {counted(len(found), 'model')} in {counted(first.rounds, 'round')}{other * first.shared}"


def _save(timing: Timing, runs: Path) -> None:
    with store.writing(runs, timing.trial, wait=LOCK_SECONDS):
        sidecars.save_timing(timing, runs)


def _first_line(error: Exception) -> str:
    reason = str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
    return sentence((reason.splitlines() or [type(error).__name__])[0])
