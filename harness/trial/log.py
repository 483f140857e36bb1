"""A trial's own log file, appended to by each of its sessions."""

import contextlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import StorageError

LOG_NAME = "trial.log"
MAX_BYTES = 64 * 1024  # of one message


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
        raise StorageError.of(folder / LOG_NAME, cause) from cause
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    try:
        yield log
    finally:
        log.removeHandler(handler)
        with contextlib.suppress(OSError):  # the rest of its buffer cannot be written to a full disk
            handler.close()


class _Handler(logging.FileHandler):
    def format(self, record: logging.LogRecord) -> str:
        """The text of a message, its middle left out beyond MAX_BYTES; lone surrogates as backslashes."""
        content = super().format(record).encode("utf-8", "backslashreplace")
        if len(content) > MAX_BYTES:
            half = MAX_BYTES // 2 - 50  # room for the note
            note = f"\n... {len(content) - 2 * half:,} bytes left out ...\n".encode()
            content = content[:half] + note + content[-half:]
        return content.decode("utf-8", "ignore")  # without a character that was cut in two

    def handleError(self, record: logging.LogRecord) -> None:
        """Print nothing when a line cannot be written: on a full disk the next checkpoint raises the error."""
