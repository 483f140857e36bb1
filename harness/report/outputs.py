"""Write the files of a report; and the numbers of the trials that they are made of, as files contain them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.machine.files import write_atomically


@dataclass(frozen=True, slots=True)
class Trials:
    """The numbers of trials that files are made of: ok, planned, and invalid (their certificate failed)."""

    ok: int
    planned: int
    invalid: int = 0

    def __str__(self) -> str:
        """As files contain it."""
        return f"{self.ok} ok of {self.planned}" + (f", {self.invalid} invalid" if self.invalid else "")


def total(every: Iterable[Trials]) -> Trials:
    """The numbers of the trials of several suites together."""
    found = list(every)
    return Trials(
        ok=sum(each.ok for each in found),
        planned=sum(each.planned for each in found),
        invalid=sum(each.invalid for each in found),
    )


def write(files: Mapping[Path, bytes], *, gone: Iterable[Path] = ()) -> None:
    """Write files that changed, and remove others.

    Raises: StorageError.
    """
    for place, content in files.items():
        if not place.is_file() or place.read_bytes() != content:
            write_atomically(place, content)
    for place in gone:
        place.unlink(missing_ok=True)
