"""The events of a trial, as executors report them: it started, it made progress, it finished."""

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from harness.plan.specs import TrialSpec
from harness.printable import sentence
from harness.records.record import TrialRecord
from harness.training.loop import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of one trial.

    Args:
        progress: of a 'progress' event: how far the trial is.
        record: of a 'finished' event: the trial's record; None when the trial ended without one.
        message: of a 'finished' event without a record: the reason.
    """

    kind: Literal["started", "progress", "finished"]
    spec: TrialSpec
    progress: Progress | None = None
    record: TrialRecord | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the trial has finished with the status 'ok'."""
        return self.record is not None and self.record.status == "ok"


OnEvent = Callable[[Event], None]


class GuardedListener:
    """Calls a listener, which may raise without any effect on the trials. Only its first exception is printed."""

    def __init__(self, on_event: OnEvent):
        self._on_event, self._printed = on_event, False

    def __call__(self, event: Event) -> None:
        """Pass an event to the listener."""
        try:
            self._on_event(event)
        except Exception as error:
            if not self._printed:
                self._printed = True
                with contextlib.suppress(OSError):  # standard error may be closed
                    text = f"the progress of {event.spec} cannot be shown: {type(error).__name__}: {error}"
                    print(sentence(text), file=sys.stderr)
