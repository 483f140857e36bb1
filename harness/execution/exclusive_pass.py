"""After the trials of a run: one of each row is timed again while nothing else of ours runs, wherever trials run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from harness.code.fingerprints import is_outdated
from harness.errors import HarnessError
from harness.execution.driver import on_gpu, with_route
from harness.execution.events import Claim
from harness.machine import environment
from harness.plan.specs import TrialSpec
from harness.printable import sentence
from harness.records import store, timings
from harness.records.record import TrialRecord
from harness.records.timings import Timing
from harness.trial.setting import Setting

LOCAL = "local"
LOCK = "timing"  # held by a pass: two of one suite would time each other
LOCK_SECONDS = 10.0  # that a trial's own lock is waited for

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What a pass is to time: the first ok trial of each row; and what is to be said of the others."""

    found: list[TrialRecord]
    sentences: list[str]


def time_rows(
    trials: tuple[TrialSpec, ...], setting: Setting, claim: Claim, address: str, say: Tell, warn: Tell
) -> bool:
    """Time a trial of each row, if any row lacks an exclusive timing: then all of them, since only times of one pass
    compare. Once every trial has a record, and not before. True where a pass was made.

    Whatever goes wrong is a warning: times are a view of trials that are finished. KeyboardInterrupt passes through;
    the next command makes up for it.

    Args:
        setting: as the trials had it; `fresh`: their timings are outdated, too.
        say, warn: hear sentences for the user.
    """
    try:
        due = what_is_due(trials, setting, claim, address)
        for each in due.sentences:
            say(each)
        if not due.found:
            return False
        with store.writing(setting.runs, LOCK):
            due = what_is_due(trials, setting, claim, address)  # another command may have made the pass meanwhile
            return bool(due.found) and _passed(due.found, setting, claim, address, say, warn)
    except Exception as error:
        warn(f"warning: the rows are not timed: {_told(error)}; the same command tries again")
        return False


def what_is_due(trials: Iterable[TrialSpec], setting: Setting, claim: Claim, address: str) -> Due:
    """The records to time; none while a trial has no record, and none once every row has its timing.

    A row is timed on the device that trained it. On a cluster that is whatever node takes the pass, and all rows' times
    are to be of one device.
    """
    specs = list(trials)
    known, _ = store.load_all(setting.runs, [spec.id for spec in specs])
    rows: dict[tuple[str, str, str], list[TrialRecord]] = {}
    for record in (known[spec.id] for spec in specs if spec.id in known):
        if record.status == "ok" and not is_outdated(record):  # its weights are of code that is gone
            spec = record.spec
            rows.setdefault((str(spec.corpus), str(spec.backbone), str(spec.head)), []).append(record)
    several = {key for key, row in rows.items() if row[0].spec.train.data_parallel > 1}
    here = environment.device_name(torch.device("cuda" if on_gpu(setting, claim) else "cpu"))
    elsewhere = {key for key, row in rows.items() if address == LOCAL and row[0].environment.device != here}
    sentences = []
    if several:
        sentences.append("data-parallel trials are not timed alone: their times are those of their training")
    elif elsewhere:
        devices = ", ".join(sorted({rows[key][0].environment.device for key in elsewhere}))
        sentences.append(f"not timed: {_models(len(elsewhere))} trained on {devices}, since this is {here}")
    rows = {key: row for key, row in rows.items() if key not in several | elsewhere}
    settled = not setting.fresh and _settled(setting.runs, list(rows.values()), here if address == LOCAL else None)
    through = len(known) == len(specs)
    return Due(found=[] if settled or not through else [row[0] for row in rows.values()], sentences=sentences)


def _settled(runs: Path, rows: list[list[TrialRecord]], device: str | None) -> bool:
    """Whether each row has a timing, all of them of one pass, on this device where it is known."""
    devices, passes = set(), set()
    for row in rows:
        taken, _ = timings.load_all(runs, {record.id: record for record in row})
        if not taken:
            return False
        latest = max(taken.values(), key=lambda each: each.taken)
        devices, passes = devices | {latest.device}, passes | {latest.pass_id}
    return len(passes) <= 1 and len(devices | ({device} if device is not None else set())) <= 1


def _passed(found: list[TrialRecord], setting: Setting, claim: Claim, address: str, say: Tell, warn: Tell) -> bool:
    say(f"timing {_models(len(found))}, one at a time ...")
    if not on_gpu(setting, claim):
        setting = with_route(setting)
    if setting.executor == "inline":
        from harness.execution import inline

        taken, sentences = inline.time_rows(found, setting, claim)
    else:
        from harness.execution.ray import schedule

        taken, sentences = schedule.time_rows(found, setting, claim, address)
    for each in sentences:
        warn(f"warning: {sentence(each)}")
    for timing in taken:
        _save(timing, setting.runs)
    say(_outcome(taken))
    return bool(taken)


def _outcome(taken: list[Timing]) -> str:
    if not taken:
        return "no model was timed"
    first = taken[0]
    other = f"; other work keeps {first.busy:.1f} cores busy: marked as shared, --timing tries again" * first.shared
    return f"timed {_models(len(taken))} in {first.rounds} rounds{other}"


def _models(number: int) -> str:
    return f"{number} model{'s' * (number != 1)}"


def _save(timing: Timing, runs: Path) -> None:
    with store.writing(runs, timing.trial, wait=LOCK_SECONDS):
        timings.save(timing, runs)


def _told(error: Exception) -> str:
    reason = str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
    return sentence((reason.splitlines() or [type(error).__name__])[0])
