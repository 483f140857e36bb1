"""Averaging of weights: which weights are validated, tested and kept. By default they are those that are trained.

Another way of averaging is a setting in TrainSpec (harness/plan/specs.py), a class with the methods of Averaging, and a
line in `make_averaging`. An average is saved, resumed, and unchanged by a CUDA graph's warm-up,
because it is a part of training. docs/design/walks.md has an exponential average in full.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from harness.model import LanguageModel
from harness.plan.specs import AveragingSpec, TrainSpec


class Averaging:
    """A part of training (harness/training/parts.py) that may hold a second set of weights: their average. Here none:
    the weights that are trained are also those that are evaluated.

    Attributes:
        number: how many weights are in the average.
    """

    number = 0

    def update(self) -> None:
        """Take the model's weights into the average. Called after every training step."""

    def swap(self) -> None:
        """Exchange the model's weights and the average, in place. Called before and after each validation, and once
        when training has ended.
        """

    def after_epoch(self, epoch: int, valid_loss: float) -> None:
        """Called after each epoch, with its number from 1 and its validation loss in nats a token."""

    def begin(self, losses: Sequence[float] = ()) -> None:
        """Begin a new average. Called where a second stage begins, and where the memory of a step is counted.

        Args:
            losses: of validation, of the epochs before, in nats a token.
        """

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class StepAverage(Averaging):
    """The mean of the weights after each step since a first one, of averaged SGD (ASGD):

        a_n = a_{n-1} + (w_n - a_{n-1}) / n,  n from 1

    Source: Polyak and Juditsky (1992), "Acceleration of Stochastic Approximation by Averaging"; Merity et al. (2018),
        arXiv:1708.02182, section 3 and algorithm 1 (the non-monotone trigger, NT-ASGD).
    Differs: torch's ASGD with t0 = 0 and lambd = 0, which the authors' code changes to, leaves the first step out of
        the mean. It also applies each step's learning rate one step later, where lengths of segments change it.

    Args:
        settings: when it begins; None: not before `begin`.
    Attributes:
        losses: of validation, in nats a token: of all epochs, or of those since `begin`.
    """

    def __init__(self, model: LanguageModel, settings: AveragingSpec | None):
        self.weights = [each for each in model.parameters() if each.requires_grad]
        self.settings = settings
        self.active, self.number = False, 0
        self.average: list[Tensor] = []
        self.losses: list[float] = []
        if settings is not None and settings.after == 0:
            self.begin()

    @torch.no_grad()
    def update(self) -> None:
        if not self.active:
            return
        self.number += 1
        torch._foreach_lerp_(self.average, self.weights, 1 / self.number)  # the first one as it is, to the bit

    @torch.no_grad()
    def swap(self) -> None:
        if not self.number:
            return
        for weight, average in zip(self.weights, self.average, strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)

    def after_epoch(self, epoch: int, valid_loss: float) -> None:
        self.losses.append(valid_loss)
        settings = self.settings
        if self.active or settings is None:
            return
        if settings.after == epoch or (settings.non_monotone and is_above_the_best(self.losses, settings.non_monotone)):
            self.begin(self.losses)

    def begin(self, losses: Sequence[float] = ()) -> None:
        """Average from the next step on."""
        self.active, self.number, self.losses = True, 0, list(losses)
        self.average = [torch.zeros_like(each) for each in self.weights]

    def state_dict(self) -> dict[str, Any]:
        average = self.average if self.number else []
        return {"active": self.active, "number": self.number, "losses": list(self.losses), "average": average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["active"] and not self.active:
            self.begin()
        self.active, self.number, self.losses = state["active"], state["number"], list(state["losses"])
        if self.number:
            torch._foreach_copy_(self.average, state["average"])


def is_above_the_best(losses: Sequence[float], patience: int) -> bool:
    """Whether the last validation loss is above the best of those before it but the last `patience` of these."""
    *before, last = losses
    return len(before) > patience and last > min(before[:-patience])


def make_averaging(model: LanguageModel, train: TrainSpec) -> Averaging:
    """The averaging that the settings of training ask for."""
    averaged = train.averaging is not None or train.finetune is not None
    return StepAverage(model, train.averaging) if averaged else Averaging()
