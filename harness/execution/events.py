"""What executors tell of their trials, and what a trial may claim."""

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from harness.plan.specs import TrialSpec
from harness.printable import sentence
from harness.records.record import TrialRecord
from harness.training.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A trial began, got on (`progress`), or ended: with a `record`, or lost without one, for the reason `message`."""

    kind: Literal["started", "progress", "finished"]
    spec: TrialSpec
    progress: Progress | None = None
    record: TrialRecord | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        """It ended, and well."""
        return self.record is not None and self.record.status == "ok"


OnEvent = Callable[[Event], None]


class Guarded:
    """A listener that may raise without harm to any trial; it is told of once."""

    def __init__(self, on_event: OnEvent):
        self._on_event, self._complained = on_event, False

    def __call__(self, event: Event) -> None:
        """Tell it."""
        try:
            self._on_event(event)
        except Exception as error:
            if not self._complained:
                self._complained = True
                with contextlib.suppress(OSError):  # the terminal may be what is wrong
                    print(sentence(f"watching {event.spec} failed: {type(error).__name__}: {error}"), file=sys.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one trial takes: CPU cores, also its torch threads, and a share of a GPU (None: a whole one where there is
    one; 0: none, it runs on the CPU). A data-parallel trial takes so many cores for each worker, and a GPU for each.
    """

    cpus: int
    gpus: float | None
