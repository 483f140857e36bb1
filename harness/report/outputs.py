"""The files of a report: those of one command are written together, and none over a file of more finished trials.

How many trials a file is made of is read from the file itself, so it is known of older files too: a table has it in
its cells ('8/8', '1/3: 2 not run'), a page, a plot and the leaderboard in words ('32 ok of 32'). Plots from before
they said it count as the page beside them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import FewerTrialsError
from harness.machine.files import write_atomically

_NUMBERS = r"(\d{1,9}) ok of (\d{1,9})(?:, (\d{1,9}) invalid)?"
_WORDS = re.compile(f"(?:<dt>Trials</dt><dd>|<dc:description>|Description\\0|^Trials: ){_NUMBERS}".encode(), re.M)
_CELL = re.compile(  # of a table, in any of its forms: '8/8', '1/3: 1 not run, 1 invalid'
    r"(?:^|[|&,\"])\s*(\d{1,9})/(\d{1,9})(?![\w/.])(?:: [^|&\"]*?(\d{1,9}) invalid)?"
)


@dataclass(frozen=True, slots=True)
class Trials:
    """What a file is made of: trials that are ok, all that it has a place for, and those whose certificate failed."""

    ok: int
    planned: int
    invalid: int = 0

    @property
    def finished(self) -> int:
        """Trials that are ok or invalid: a table that calls a trial invalid may replace one that called it ok."""
        return self.ok + self.invalid

    def __str__(self) -> str:
        """As files say it."""
        return f"{self.ok} ok of {self.planned}" + (f", {self.invalid} invalid" if self.invalid else "")


def write(files: Mapping[Path, bytes], *, gone: Iterable[Path] = (), overwrite: bool = False) -> None:
    """Write files where they changed, and remove those that are gone: all of them, or none.

    Args:
        files: the new contents.
        gone: files of an earlier time that have no new content.
        overwrite: also over files that are made of more trials.
    Raises: FewerTrialsError where a file is made of more trials that are ok than the new ones, or where it does not say
        of how many and some of the new ones' trials are not ok: nothing is written then. StorageError.
    """
    gone = tuple(gone)
    if not overwrite:
        _refuse_fewer(files, gone)
    for place, content in files.items():
        if not place.is_file() or place.read_bytes() != content:
            write_atomically(place, content)
    for place in gone:
        place.unlink(missing_ok=True)


def trials_of(place: Path, content: bytes) -> Trials | None:
    """What a file of this content is made of; None where it does not say."""
    if found := _WORDS.search(content):
        return Trials(*(int(number or 0) for number in found.groups()))
    if place.suffix not in (".md", ".csv", ".tex"):
        return None
    lines = content.decode("utf-8", errors="replace").splitlines()
    cells = [match for line in lines if not line.startswith("- ") for match in _CELL.finditer(line)]
    return Trials(*(sum(int(cell[part] or 0) for cell in cells) for part in (1, 2, 3))) if cells else None


def _refuse_fewer(files: Mapping[Path, bytes], gone: tuple[Path, ...]) -> None:
    new = [made for place, content in files.items() if (made := trials_of(place, content)) is not None]
    old = {place: trials_of(place, place.read_bytes()) for place in (*files, *gone) if place.is_file()}
    if not new or not old:
        return
    ours = max(new, key=lambda made: made.finished)
    known = {place: made for place, made in old.items() if made is not None}
    if not known:
        if ours.finished < ours.planned:
            place = next(iter(old))
            raise FewerTrialsError(
                f"{place} stays: it does not say of how many finished trials it is made, and the new one would be made "
                f"of {ours.finished} of {ours.planned}; nothing was written; --overwrite replaces it"
            )
        return
    place = max(known, key=lambda each: known[each].finished)
    if ours.finished < known[place].finished:
        raise FewerTrialsError(
            f"{place} stays: it is made of {known[place].finished} finished trials, and the new one would be made of "
            f"{ours.finished}; nothing was written; --overwrite replaces it"
        )
