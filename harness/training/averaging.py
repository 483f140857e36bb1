"""Averaging of weights: which weights are validated, tested and kept. By default they are those that are trained.

A way of averaging is a field of TrainSpec (harness/plan/specs.py) that asks for it, with a default under which nothing
changes; a class with the methods of Averaging; and one line in `make_averaging` that chooses it. An average is saved,
resumed, and unchanged by a CUDA graph's warm-up, because it is a part of training. docs/design/walks.md has an
exponential average in full.
"""

from typing import Any

from harness.model import LanguageModel
from harness.plan.specs import TrainSpec


class Averaging:
    """A part of training (harness/training/parts.py) that may hold a second set of weights: their average. Here none:
    the weights that are trained are also those that are evaluated.
    """

    def update(self) -> None:
        """Take the model's weights into the average. Called after every training step."""

    def swap(self) -> None:
        """Exchange the model's weights and the average, in place. Called before and after each validation, and once
        when training has ended.
        """

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def make_averaging(model: LanguageModel, train: TrainSpec) -> Averaging:
    """The averaging that the settings of training ask for. No setting asks for one so far."""
    return Averaging()
