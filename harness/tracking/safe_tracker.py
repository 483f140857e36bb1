"""Tracking that never fails a run: a fault of MLflow is one warning, and no trial is lost."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import HarnessError
from harness.printable import sentence

if TYPE_CHECKING:
    from harness.tracking.tracker import Tracker


class SafeTracker:
    """Opens MLflow when it is first needed, and warns once when MLflow fails. After that it does nothing;
    `harness sync` writes what is missing.

    Args:
        results: the results folder, or None to track nothing.
        warn: called with the warning.
    """

    def __init__(self, results: Path | None, warn: Callable[[str], None]):
        self.results, self._warn = results, warn
        self._tracker: Tracker | None = None

    def call(self, action: Callable[["Tracker"], object]) -> None:
        """Call a function with the tracker, unless tracking is off or has failed before. Raises nothing."""
        if self.results is None:
            return
        try:
            if self._tracker is None:
                from harness.tracking.tracker import Tracker

                self._tracker = Tracker(self.results)
            action(self._tracker)
        # guard: tracking-fault-is-warning
        except Exception as error:  # of any kind: MLflow only shows records, so its faults must not fail a trial
            reason = str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
            first_line = sentence(reason.splitlines()[0])
            self._warn(f"MLflow is off from here on ({first_line}); `harness sync` rebuilds it later")
            self.results = None  # guard: tracking-off-after-fault
