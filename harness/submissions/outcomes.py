"""The outcome of one check of a submission, as a line and as JSON."""

from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from harness.printable import sentence

Outcome = Literal["ok", "refused", "marked", "not checked"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Args:
        outcome: 'refused': the submission cannot be taken; 'marked': it can, and what was found is shown with it.
        verdict: of `harness verify`, where a trial was trained again.
    """

    name: str
    outcome: Outcome
    sentence: str
    verdict: str = ""

    def __str__(self) -> str:
        return f"{self.outcome:<11}  {self.name}: {sentence(self.sentence)}"


CHECKS = TypeAdapter(list[Check])  # reads those that another process has written


def judged(name: str, faults: list[str], marks: list[str], otherwise: str) -> Check:
    """The outcome of what was found: refused with faults, marked with marks, else ok with a sentence."""
    found: list[str] = faults or marks
    shown = [*found[:3], *([f"and {len(found) - 3} more"] if len(found) > 3 else [])]
    outcome: Outcome = "refused" if faults else "marked" if marks else "ok"
    return Check(name, outcome, "; ".join(shown) if found else otherwise)


def is_refused(checks: list[Check]) -> bool:
    return any(each.outcome == "refused" for each in checks)
