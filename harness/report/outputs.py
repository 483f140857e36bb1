"""Write the files of a report: those of one command together, and none over a file of more finished trials.

The number of trials that a file is made of is read from the file itself, so it is known for older files too: a table
has it in its cells ('8/8', '1/3: 2 not run'), a page, a plot and the leaderboard in words ('32 ok of 32'). Older plots,
which do not contain it, count as the page beside them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import FewerTrialsError
from harness.machine.files import write_atomically

_NUMBERS = r"(\d{1,9}) ok of (\d{1,9})(?:, (\d{1,9}) invalid)?"
_WORDS = re.compile(
    f"(?:<dt>Trials</dt><dd>|<dc:description>|Description\\0|/Subject \\(|^Trials: ){_NUMBERS}".encode(), re.M
)
_CELL = re.compile(  # of a table, in any of its forms: '8/8', '1/3: 1 not run, 1 invalid'
    r"(?:^|[|&,\"])\s*(\d{1,9})/(\d{1,9})(?![\w/.])(?:: [^|&\"]*?(\d{1,9}) invalid)?"
)


@dataclass(frozen=True, slots=True)
class Trials:
    """The numbers of trials that a file is made of: ok, planned, and invalid (their certificate failed)."""

    ok: int
    planned: int
    invalid: int = 0

    @property
    def finished(self) -> int:
        """Trials that are ok or invalid: a table with an invalid trial may replace one in which it was ok."""
        return self.ok + self.invalid

    def __str__(self) -> str:
        """As files contain it."""
        return f"{self.ok} ok of {self.planned}" + (f", {self.invalid} invalid" if self.invalid else "")


def write(files: Mapping[Path, bytes], *, gone: Iterable[Path] = (), overwrite: bool = False) -> None:
    """Write files that changed, and remove others: all of them, or none.

    Raises: FewerTrialsError when a file is made of more finished trials than the new ones, or when it does not contain
        their number and some of the new trials are not finished: then nothing is written. StorageError.
    """
    gone = tuple(gone)
    new = [made for place, content in files.items() if (made := trials_of(place, content)) is not None]
    if not overwrite and new:  # guard: fuller-table-kept
        refuse_fewer((*files, *gone), max(new, key=lambda made: made.finished))
    for place, content in files.items():
        if not place.is_file() or place.read_bytes() != content:
            write_atomically(place, content)
    for place in gone:
        place.unlink(missing_ok=True)


def trials_of(place: Path, content: bytes) -> Trials | None:
    """The numbers of trials in the content of a file; None if it does not contain them."""
    if found := _WORDS.search(content):
        return Trials(*(int(number or 0) for number in found.groups()))
    if place.suffix in (".html", ".svg", ".png", ".pdf"):
        return None
    lines = content.decode("utf-8", errors="replace").splitlines()
    cells = [match for line in lines if not line.startswith("- ") for match in _CELL.finditer(line)]
    return Trials(*(sum(int(cell[part] or 0) for cell in cells) for part in (1, 2, 3))) if cells else None


def refuse_fewer(places: Iterable[Path], ours: Trials, undone: str = "nothing was written") -> None:
    """Raise if files are not to be replaced by new ones, as `why_kept` says. Called before work whose result would not
    be written.

    Raises: FewerTrialsError.
    """
    if (reason := why_kept(places, ours)) is not None:
        raise FewerTrialsError(f"{reason}; {undone}; --overwrite replaces it")


def why_kept(places: Iterable[Path], ours: Trials) -> str | None:
    """Why files are not to be replaced by new ones: one is made of more finished trials than ours, or none says of how
    many, and some of our trials are not finished. None: they are to be replaced.
    """
    old = {place: trials_of(place, place.read_bytes()) for place in places if place.is_file()}
    known = {place: made for place, made in old.items() if made is not None}
    if old and not known and ours.finished < ours.planned:  # guard: table-of-unknown-size-kept
        return (
            f"{next(iter(old))} is not replaced: it does not say of how many finished trials it is made, and the new "
            f"one would be made of {ours.finished} of {ours.planned}"
        )
    place = max(known, key=lambda each: known[each].finished, default=None)
    if place is None or ours.finished >= known[place].finished:
        return None
    return (
        f"{place} is not replaced: it is made of {known[place].finished} finished trials, and the new one would be "
        f"made of {ours.finished}"
    )
