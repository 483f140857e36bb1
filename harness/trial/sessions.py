"""Who worked on a trial before: its attempts while it has no record, and the sessions that its
checkpoint names.

`attempt.json` is in the trial's folder until its record is; its time of change is the trial's
heartbeat. A worker that finds an attempt of its own run there knows that an earlier worker died. A
session is one process' part in training; the record reports what differs between a trial's
sessions.
"""

import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

import torch

import harness
from harness.code import hashes
from harness.code.hashes import KINDS, SHOWN
from harness.kernels.choice import FormChoice
from harness.machine import environment
from harness.machine.files import write_atomically
from harness.records.record import Environment, Fingerprints
from harness.training.checkpoint import Checkpoint, Position, SessionInfo
from harness.trial.reading import Readings
from harness.trial.task import Task

SWITCHED_OFF, LOSS_FORM, NOTHING = "switched off", "loss form", "nothing"
FILE_NAME = "attempt.json"
STUCK = "stuck.log"  # where the watchdog writes what a silent trial was doing
NOWHERE = (-1, -1)  # no attempt begins there
# Of workers at one position; after so many the cause is the trial and not the machine.
MAX_DEATHS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a trial.

    Args:
        driver: the run that made it.
        position: (epoch, step) of the checkpoint it began from.
        deaths: of workers of this run at that position, before this attempt.
        retries: earlier attempts of this run.
    """

    driver: str
    position: tuple[int, int]
    deaths: int = 0
    retries: int = 0


def begin(folder: Path, driver: str, position: tuple[int, int]) -> Attempt:
    """Write down that an attempt begins."""
    before, attempt = last(folder), Attempt(driver=driver, position=position)
    if before is not None and before.driver == driver:
        same = before.position == position
        # A death elsewhere is forgiven: the trial went on after it, so that was not its fault.
        deaths = (before.deaths if same else 0) + 1
        attempt = replace(attempt, deaths=deaths, retries=before.retries + 1)
    _write(folder, attempt)
    return attempt


def forgive(folder: Path) -> None:
    """The last attempt ended without a fault of the trial: its death does not count."""
    if (attempt := last(folder)) is not None:
        _write(folder, replace(attempt, position=NOWHERE))


def follows(folder: Path, driver: str) -> bool:
    """Whether the last attempt was one of this run."""
    before = last(folder)
    return before is not None and before.driver == driver


def end(folder: Path) -> None:
    """Remove the files about attempts: the trial has its record."""
    for name in (STUCK, FILE_NAME):
        (folder / name).unlink(missing_ok=True)


def ended(folder: Path) -> bool:
    """Whether there is no attempt, or `end` was called for it."""
    return not (folder / FILE_NAME).exists()


def _write(folder: Path, attempt: Attempt) -> None:
    write_atomically(folder / FILE_NAME, json.dumps(asdict(attempt)).encode())


def last(folder: Path) -> Attempt | None:
    """The last attempt; None when there is none that can be read."""
    try:
        content = json.loads((folder / FILE_NAME).read_bytes())
        return Attempt(**{**content, "position": tuple(content["position"])})
    # There is none, or another version wrote it.
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


class History:
    """A trial's history, and its present session after those that its checkpoint names.

    Args:
        resumed: the checkpoint that training is resumed from, or None.
        attempt: which attempt this is; None where none is kept.
        stuck: where the attempt before was silent, as the watchdog wrote it; '' when it was not
            ended for silence.
        choice: the forms that this session takes. What an earlier session left out stays left out.

    `readings`: what the components read in this session; None before they are built. `read_before`:
        what they read in earlier ones.
    `shared`: whether other work was known or observed to run, in this session or an earlier one.
    """

    def __init__(
        self,
        task: Task,
        resumed: Checkpoint | None = None,
        attempt: Attempt | None = None,
        stuck: str = "",
        choice: FormChoice | None = None,
    ):
        self.task, self.resumed, self.attempt, self.stuck = task, resumed, attempt, stuck
        self.retries = task.retries + (attempt.retries if attempt is not None else 0)
        self.choice = choice or FormChoice(task.spec.train.loss_form)
        self.load = environment.load_average()
        self.code = hashes.of_trial(task.spec)
        self._fixed = _facts(task, self.code)
        self.readings: Readings | None = None
        self.read_before: tuple[str, ...] = ()
        self.number, self.changed, self.started = 1, (), environment.now()
        self.shared = task.shared
        self.elapsed = self.peak_memory_mib = 0.0
        if resumed is None:
            return
        before = resumed.session
        # A form that failed once would change the bits again where it is tried again.
        for name in _left_out(before.facts):
            self.choice.leave_out(name, "it was left out before the trial was resumed")
        self.number, self.started = before.number + 1, before.started
        self.elapsed, self.peak_memory_mib = before.elapsed, before.peak_memory_mib
        self.read_before = before.read
        self.changed = before.changed + self._changes(resumed)
        self.shared = task.shared or before.shared  # times are of all sessions

    @classmethod
    def begun(cls, task: Task, resumed: Checkpoint | None, warn: Callable[[str], None]) -> Self:
        """An attempt that begins now, noted in its folder. `warn` receives a sentence for each form
        left out.
        """
        folder, before = task.folder, last(task.folder)
        log, stuck = folder / STUCK, ""
        # What another run left behind is no reason to give up in this one.
        if before is not None and before.driver == task.driver and log.exists():
            stuck = log.read_text(encoding="utf-8", errors="replace")
        attempt = begin(folder, task.driver, place_of(resumed))
        return cls(task, resumed, attempt, stuck, FormChoice(task.spec.train.loss_form, log=warn))

    @property
    def position(self) -> Position:
        return place_of(self.resumed)

    @property
    def facts(self) -> dict[str, str]:
        """What bits may depend on, beside the spec, by the names that records use."""
        facts = {**self._fixed}
        if self.choice.trained_by:  # which is not known before the first batch
            facts[LOSS_FORM] = self.choice.trained_by
        facts[SWITCHED_OFF] = ", ".join(sorted(self.choice.left_out)) or NOTHING
        return facts

    @property
    def read(self) -> tuple[str, ...]:
        """What the components read that no parameter names, in this session and in those before."""
        now = () if self.readings is None else self.readings.sentences()
        return tuple(dict.fromkeys((*self.read_before, *now)))

    def info(self, elapsed: float, peak_memory_mib: float) -> SessionInfo:
        """For a checkpoint: with the seconds of all sessions, and the peak of this one, so far."""
        return SessionInfo(
            number=self.number,
            started=self.started,
            elapsed=elapsed,
            peak_memory_mib=max(peak_memory_mib, self.peak_memory_mib),
            route=self.task.route if self.task.device == "cpu" else "default",
            facts=self.facts,
            changed=self.changed,
            shared=self.shared,
            read=self.read,
        )

    def environment(self, *, graphed: bool) -> Environment:
        """For the record."""
        task = self.task
        return Environment(
            device=self.facts["device"],
            threads=task.threads,
            load_average=round(self.load, 2),
            shared=self.shared,
            python=platform.python_version(),
            torch=torch.__version__,
            harness=harness.__version__,
            commit=self.facts["commit"],
            executor=task.executor,
            started=self.started,
            finished=environment.now(),
            matmul_route=task.route if task.device == "cpu" else None,
            cuda_graph=graphed,
            loss_form=self.choice.trained_by or None,
            sessions=self.number,
            retries=self.retries,
            changed=self.changed,
            switched_off=self.choice.sentences(),
            read=self.read,
        )

    def _changes(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """'commit aaa until epoch 2' for each fact that is another one in this session."""
        (epoch, step), old = checkpoint.position, checkpoint.session.facts
        until = f"until epoch {epoch}, step {step}" if step else f"until epoch {epoch}"
        changes = []
        for name, now in self.facts.items():
            if old.get(name, now) != now:  # an older checkpoint may lack a fact
                changes.append(f"{name} {old[name]} {until}")
        return tuple(changes)


def place_of(checkpoint: Checkpoint | None) -> Position:
    """Where training goes on from a checkpoint, or begins without one."""
    return Position() if checkpoint is None else checkpoint.position


def _facts(task: Task, code: Fingerprints) -> dict[str, str]:
    """Those that stay the same in a session."""
    return {
        "device": environment.device_name(torch.device(task.device)),
        "threads": str(task.threads),
        "torch": str(torch.__version__),  # a subclass of str, which no checkpoint may hold
        "commit": environment.commit(),
        "products by": task.route if task.device == "cpu" else "cuBLAS",
        **{f"{kind}'s code": getattr(code, kind)[:SHOWN] for kind in KINDS},
    }


def _left_out(facts: dict[str, str]) -> list[str]:
    names = facts.get(SWITCHED_OFF, NOTHING)
    return [] if names == NOTHING else names.split(", ")
