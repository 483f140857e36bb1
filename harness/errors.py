"""Mistakes a user can make. Each carries one clear sentence; the command line prints it and leaves with code 2.

What a sentence quotes (names, paths, texts of files) is made printable here, once for all of them.
"""

from harness.printable import sentence


class HarnessError(Exception):
    """A user's mistake or an unfit environment: what is wrong, where, and what was expected."""

    exit_code = 2

    def __str__(self) -> str:
        return sentence(super().__str__())


class SuiteError(HarnessError):
    """A suite that cannot be run. `problems` holds one located sentence for each thing that is wrong."""

    def __init__(self, problems: list[str]):
        self.problems = [sentence(problem) for problem in problems]
        super().__init__(*self.problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)


class UnknownComponent(HarnessError):
    """A name that no registry entry has."""


class DuplicateComponent(HarnessError):
    """One name registered from two places."""


class BrokenComponent(HarnessError):
    """A component that is known by name but cannot be imported; the cause is chained."""


class ComponentError(HarnessError):
    """A component that would have ended the program, raised what cannot be shown, or changed torch's settings."""


class CorpusError(HarnessError):
    """A corpus that is missing, has the wrong content, or cannot be read."""


class WeightsError(CorpusError):
    """Pretrained weights that are missing, have the wrong content, or cannot be had: the trial waits for them as it
    does for a corpus.
    """


class RecordError(HarnessError):
    """A record that is torn, edited, or of another schema."""


class ExecutionError(HarnessError):
    """Resources or settings under which no trial could start."""


class StorageError(HarnessError, OSError):
    """A place that cannot be written: a full disk, a folder that is gone or read-only."""


class FewerTrialsError(HarnessError):
    """A table, page or plot that would replace one made of more finished trials."""

    exit_code = 1


class Damaged(HarnessError):
    """A checkpoint or file of weights whose content is not what was written."""
