"""MLflow at arm's length: whatever goes wrong with it is one warning, never a failed trial."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from harness.errors import HarnessError
from harness.printable import sentence

if TYPE_CHECKING:
    from harness.tracking.mlflow_runs import Tracker


class Tracking:
    """Opens MLflow when it is first needed; after a fault it is off, and `harness sync` makes it good.

    Args:
        results: the results folder, or None to track nothing.
        console: where the warning goes.
    """

    def __init__(self, results: Path | None, console: Console):
        self.results, self.console = results, console
        self._tracker: Tracker | None = None

    def call(self, action: Callable[["Tracker"], Any]) -> None:
        """Do something with the tracker, unless tracking is off or has failed before."""
        if self.results is None:
            return
        try:
            if self._tracker is None:
                from harness.tracking.mlflow_runs import Tracker

                self._tracker = Tracker(self.results)
            action(self._tracker)
        except Exception as error:  # a view of the records is not worth a trial
            reason = str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
            said = sentence(reason.splitlines()[0])
            self.console.print(f"warning: MLflow is off from here on ({said}); `harness sync` rebuilds it later")
            self.results = None
