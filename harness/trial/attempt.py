"""What is known of a trial's attempts while it has no record: by which run, from where, how often a worker died.

`attempt.json` lies in the trial's folder from its start to its record; its time of change is the trial's heartbeat. A
worker that finds one of its own run there follows one that died.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.machine.files import write_atomically

FILE_NAME = "attempt.json"
STUCK = "stuck.log"  # where the watchdog says what a silent trial was doing
MAX_DEATHS = 2  # of workers at one position: a fault of the trial's own, not of what it runs on


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a trial.

    Args:
        driver: the run that made it.
        position: (epoch, step) of the checkpoint it began from.
        deaths: of workers of this run at that position, before.
        retries: attempts of this run before.
    """

    driver: str
    position: tuple[int, int]
    deaths: int = 0
    retries: int = 0


def begin(folder: Path, driver: str, position: tuple[int, int]) -> Attempt:
    """Note that an attempt begins, and return it."""
    attempt = Attempt(driver=driver, position=position)
    if follows(folder, driver):
        before = last(folder)
        deaths = before.deaths + 1 if before.position == position else 1
        attempt = Attempt(driver=driver, position=position, deaths=deaths, retries=before.retries + 1)
    write_atomically(folder / FILE_NAME, json.dumps(asdict(attempt)).encode())
    return attempt


def follows(folder: Path, driver: str) -> bool:
    """Whether an attempt of this run has been there before."""
    before = last(folder)
    return before is not None and before.driver == driver


def stuck(folder: Path) -> str:
    """What the watchdog left of the attempt before: where each thread was. '' when it was none of its victims."""
    place = folder / STUCK
    return place.read_text(encoding="utf-8", errors="replace") if place.exists() else ""


def end(folder: Path) -> None:
    """The trial has its record: nothing more is known of attempts."""
    for name in (STUCK, FILE_NAME):
        (folder / name).unlink(missing_ok=True)


def ended(folder: Path) -> bool:
    """Whether `end` was heard of the last attempt, if there was any."""
    return not (folder / FILE_NAME).exists()


def last(folder: Path) -> Attempt | None:
    try:
        content = json.loads((folder / FILE_NAME).read_bytes())
        return Attempt(**{**content, "position": tuple(content["position"])})
    except (FileNotFoundError, ValueError, TypeError, KeyError):  # none, or of a harness that wrote others
        return None
