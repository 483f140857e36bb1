"""Write the files of a report: those of one command together, and none over files of more finished trials.

Beside the first file lies a small JSON file with the numbers of the trials that all of them are made of:
tables/small.json beside tables/small.md. Where it is missing, as beside files of earlier versions, they are not known.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from harness.errors import FewerTrialsError
from harness.machine.files import read_bounded, write_atomically

ENDING, MAX_BYTES = ".json", 2**12


@dataclass(frozen=True, slots=True)
class Trials:
    """The numbers of trials that files are made of: ok, planned, and invalid (their certificate failed)."""

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


def total(every: Iterable[Trials]) -> Trials:
    """The numbers of the trials of several suites together."""
    found = list(every)
    return Trials(*(sum(getattr(each, name) for each in found) for name in ("ok", "planned", "invalid")))


_STORED = TypeAdapter(dict[Literal["trials"], Trials])


def write(
    files: Mapping[Path, bytes], made_of: Trials | None = None, *, gone: Iterable[Path] = (), overwrite: bool = False
) -> None:
    """Write files that changed, and remove others: all of them, or none.

    Args:
        made_of: the numbers of their trials; None: they are made of no trials, and replace any others.
    Raises: FewerTrialsError as `refuse_fewer` does, and nothing is written then; StorageError.
    """
    gone = tuple(gone)
    if made_of is not None and not overwrite:  # guard: fuller-table-kept
        refuse_fewer((*files, *gone), made_of)
    changed = {place: content for place, content in files.items() if _differs(place, content)}
    if made_of is not None and files:
        numbers, content = next(iter(files)).with_suffix(ENDING), _STORED.dump_json({"trials": made_of})
        if (changed or numbers.exists()) and _differs(numbers, content):
            changed = {numbers: content, **changed}  # first: a write that is cut off leaves no number too small
    for place, content in changed.items():
        write_atomically(place, content)
    for place in gone:
        place.unlink(missing_ok=True)


def _differs(place: Path, content: bytes) -> bool:
    return not place.is_file() or place.read_bytes() != content


def refuse_fewer(places: Iterable[Path], ours: Trials, undone: str = "nothing was written") -> None:
    """Raise if files are not to be replaced by new ones: they are made of more finished trials than ours, or it is not
    known of how many, and some of our trials are not finished. Called before work whose result would not be written.

    Args:
        places: of the files, as they are given to `write`.
    Raises: FewerTrialsError.
    """
    places = list(places)
    old = next((place for place in places if place.is_file()), None)
    if old is None:
        return
    made_of, of = _made_of(places[0]), f"made of {ours.finished}"
    if made_of is None and ours.finished < ours.planned:  # guard: table-of-unknown-size-kept
        why = "it is not known of how many finished trials it is made"
        of += f" of {ours.planned}"
    elif made_of is not None and ours.finished < made_of.finished:
        why = f"it is made of {made_of.finished} finished trials"
    else:
        return
    raise FewerTrialsError(
        f"{old} is not replaced: {why}, and the new one would be {of}; {undone}; --overwrite replaces it"
    )


def _made_of(first: Path) -> Trials | None:
    """The numbers that are stored beside the first of some files; None where they are missing or damaged."""
    with suppress(OSError, ValueError):
        return _STORED.validate_json(read_bounded(first.with_suffix(ENDING), MAX_BYTES)).get("trials")
