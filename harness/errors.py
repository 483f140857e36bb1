"""Exceptions for mistakes of the user. Each has a message of one sentence. The command line prints the message and
exits with code 2.

A message may quote names, paths and texts of files. They are made printable here, for all exceptions.
"""

import difflib
import errno
from pathlib import Path

from harness.printable import sentence

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
NO_FOLDER = {errno.EEXIST, errno.ENOTDIR}


def nearest(name: str, known: list[str]) -> str:
    """Return '; did you mean ...?' with the most similar known name, or '' if no known name is similar."""
    matches = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean '{matches[0]}'?" if matches else ""


class HarnessError(Exception):
    """A mistake of the user or an unsuitable environment.

    The message says what is wrong, where, and what was expected.
    """

    exit_code = 2

    def __str__(self) -> str:
        return sentence(super().__str__())


class Interruption(KeyboardInterrupt):
    """Ctrl-C or SIGTERM while trials ran. Its text says what is saved and how to go on."""


class SuiteError(HarnessError):
    """A suite that cannot be run. `problems` holds one sentence for each problem, with its place in the file."""

    def __init__(self, problems: list[str]):
        self.problems = [sentence(problem) for problem in problems]
        super().__init__(*self.problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)


class UnknownComponent(HarnessError):
    """A name that is not in the registry."""


class DuplicateComponent(HarnessError):
    """A name that is registered from two places."""


class BrokenComponent(HarnessError):
    """A component whose name is known but which cannot be imported. `__cause__` is the reason."""


class ComponentError(HarnessError):
    """A component that tried to end the program, raised an exception without a readable text, or changed settings of
    torch.
    """


class CorpusError(HarnessError):
    """A corpus that is missing, has the wrong content, or cannot be read."""


class WeightsError(CorpusError):
    """Pretrained weights that are missing, have the wrong content, or cannot be downloaded.

    The trial is not run, as with a missing corpus.
    """


class RecordError(HarnessError):
    """A record that is incomplete, was edited, or has another schema."""


class ExecutionError(HarnessError):
    """Resources or settings with which no trial can start."""


class StorageError(HarnessError, OSError):
    """A file or folder that cannot be written: the disk is full, the folder is missing or read-only."""

    @classmethod
    def of(cls, place: Path, cause: OSError) -> "StorageError":
        """The sentence for a file or folder that the operating system refused to write."""
        if cause.errno in FULL:
            remedy = "free some space on its disk, or name another folder; then run the command again"
        elif cause.errno in FORBIDDEN:
            remedy = "allow yourself to write there, or name another folder"
        elif cause.errno in NO_FOLDER:
            remedy = "move away the file that stands where its folder should be"
        else:
            remedy = "name another folder, on a local disk"
        return cls(f"{place} cannot be written ({cause.strerror or cause}); {remedy}")


class Damaged(HarnessError):
    """A checkpoint or a file of weights whose content differs from what was written."""
