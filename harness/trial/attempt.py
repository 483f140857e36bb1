"""A trial's attempts while it has no record: by which run, from which position, and how many workers died.

`attempt.json` is in the trial's folder until its record is; its time of change is the trial's heartbeat. A worker that
finds an attempt of its own run there knows that an earlier worker died.
"""

import json
from dataclasses import asdict, dataclass
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
    """

    driver: str
    position: tuple[int, int]
    deaths: int = 0
    retries: int = 0


def begin(folder: Path, driver: str, position: tuple[int, int]) -> Attempt:
    """Write down that an attempt begins, and return it."""
    attempt = Attempt(driver=driver, position=position)
    if follows(folder, driver):
        before = last(folder)
        deaths = before.deaths + 1 if before.position == position else 1
        attempt = Attempt(driver=driver, position=position, deaths=deaths, retries=before.retries + 1)
    write_atomically(folder / FILE_NAME, json.dumps(asdict(attempt)).encode())
    return attempt


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


def last(folder: Path) -> Attempt | None:
    """The last attempt; None when there is none that can be read."""
    try:
        content = json.loads((folder / FILE_NAME).read_bytes())
        return Attempt(**{**content, "position": tuple(content["position"])})
    except (FileNotFoundError, ValueError, TypeError, KeyError):  # there is none, or another version wrote it
        return None
