"""Mutants that no test can kill because they change no value; each excuse is an expression, and why."""

from dataclasses import dataclass

from mutations import Mutant


@dataclass(frozen=True)
class Equivalent:
    """An expression whose surviving mutants are excused, because they change no value; stale when it excuses none."""

    file: str
    function: str
    text: str
    reason: str

    def excuses(self, file: str, mutant: Mutant) -> bool:
        """Whether the mutated node is this expression or a part of it."""
        return (self.file, self.function) == (file, mutant.function) and self.text in mutant.within


EQUIVALENT = [
    Equivalent(
        "tests/oracles.py",
        "log_sum_exp",
        "max(scores, key=lambda score: score.item()).detach()",
        "the shift cancels, in the gradient too; only scores beyond +-700 would show it",
    ),
]
