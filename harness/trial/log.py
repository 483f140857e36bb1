"""A trial's own log file, appended to by each of its sessions."""

import contextlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import StorageError

LOG_NAME = "trial.log"


@contextmanager
def trial_log(folder: Path) -> Iterator[logging.Logger]:
    """The log of the trial whose folder it is. Raises StorageError when that cannot be made."""
    log = logging.getLogger(f"harness.trial.{folder.name}")
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handler = _Handler(folder / LOG_NAME, encoding="utf-8")
    except OSError as cause:
        raise StorageError(f"{folder / LOG_NAME} cannot be written ({cause.strerror or cause})") from cause
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    try:
        yield log
    finally:
        log.removeHandler(handler)
        with contextlib.suppress(OSError):  # what it still holds, on a full disk
            handler.close()


class _Handler(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """A line lost to a full disk is none of the terminal's business: the next checkpoint tells of it."""
