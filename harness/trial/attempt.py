"""A trial's attempts while it has no record: by which run, from which position, and how many workers died.

`attempt.json` is in the trial's folder until its record is; its time of change is the trial's heartbeat. A worker that
finds an attempt of its own run there knows that an earlier worker died.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from harness.machine.files import write_atomically

FILE_NAME = "attempt.json"
STUCK = "stuck.log"  # where the watchdog writes what a silent trial was doing
MAX_DEATHS = 2  # of workers at one position; after so many the cause is the trial and not the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a trial.

    Args:
        driver: the run that made it.
        position: (epoch, step) of the checkpoint it began from.
        deaths: of workers of this run at that position, before this attempt.
        retries: earlier attempts of this run.
        trying: the part for GPUs that was tried when this was written, '' for none: an attempt that ended meanwhile
            ended with it.
        ended_with: the parts that earlier attempts ended with. They are left out.
    """

    driver: str
    position: tuple[int, int]
    deaths: int = 0
    retries: int = 0
    trying: str = ""
    ended_with: tuple[str, ...] = ()


def begin(folder: Path, driver: str, position: tuple[int, int]) -> Attempt:
    """Write down that an attempt begins, and return it."""
    before, parts = last(folder), ()
    if before is not None:
        parts = (*before.ended_with, *((before.trying,) if before.trying else ()))
    attempt = Attempt(driver=driver, position=position, ended_with=parts)
    if before is not None and before.driver == driver:
        same = before.position == position
        deaths = (before.deaths if same else 0) + (0 if before.trying else 1)
        attempt = replace(attempt, deaths=deaths, retries=before.retries + 1)
    _write(folder, attempt)
    return attempt


def left_out(attempt: Attempt | None) -> dict[str, str]:
    """The parts for GPUs that do not run in an attempt, each with the reason."""
    parts = () if attempt is None else attempt.ended_with
    return dict.fromkeys(parts, "an attempt ended, or gave no sign of life, while it was tried")


@contextmanager
def trying(folder: Path, part: str) -> Iterator[None]:
    """Within it, the trial's folder says that a part for GPUs is tried."""
    attempt = last(folder)
    if attempt is not None:
        _write(folder, replace(attempt, trying=part))
    try:
        yield
    finally:
        if attempt is not None:
            _write(folder, attempt)


def follows(folder: Path, driver: str) -> bool:
    """Whether the last attempt was one of this run."""
    before = last(folder)
    return before is not None and before.driver == driver


def stuck(folder: Path) -> str:
    """Where each thread of the attempt before was when the watchdog ended it; '' when it did not."""
    place = folder / STUCK
    return place.read_text(encoding="utf-8", errors="replace") if place.exists() else ""


def end(folder: Path) -> None:
    """Remove the files about attempts: the trial has its record."""
    for name in (STUCK, FILE_NAME):
        (folder / name).unlink(missing_ok=True)


def ended(folder: Path) -> bool:
    """Whether there is no attempt, or `end` was called for it."""
    return not (folder / FILE_NAME).exists()


def _write(folder: Path, attempt: Attempt) -> None:
    write_atomically(folder / FILE_NAME, json.dumps(asdict(attempt)).encode())


def last(folder: Path) -> Attempt | None:
    """The last attempt; None when there is none that can be read."""
    try:
        content = json.loads((folder / FILE_NAME).read_bytes())
        pairs = {name: tuple(content[name]) for name in ("position", "ended_with") if name in content}
        return Attempt(**{**content, **pairs})
    except (FileNotFoundError, ValueError, TypeError, KeyError):  # there is none, or another version wrote it
        return None
