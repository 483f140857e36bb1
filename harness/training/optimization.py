"""The optimizer of a suite, and the schedule of its learning rate."""

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from harness.plan.specs import TrainSpec


def make_optimizer(parameters: Iterator[nn.Parameter], train: TrainSpec) -> Optimizer:
    """torch's optimizer with the suite's name and settings, in its fused form. The learning rate is a tensor on the
    parameters' device, where a captured step reads it.
    """
    parameters = list(parameters)
    device = parameters[0].device
    on_gpu = device.type == "cuda"
    lr = torch.tensor(train.lr, dtype=torch.float32 if on_gpu else torch.float64, device=device)  # what fused takes
    shared = {"lr": lr, "weight_decay": train.weight_decay, "fused": True}
    if train.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=train.momentum, **shared)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[train.optimizer]
    capturable = on_gpu and train.cuda_graph != "off"
    return kind(parameters, betas=train.betas, eps=train.eps, capturable=capturable, **shared)


class Schedule(Protocol):
    """A part of training (harness/training/parts.py) that changes the learning rate of the optimizer, in place."""

    def step(self, valid_loss: float) -> None:
        """Called after each epoch, with its validation loss in nats a token."""

    def state_dict(self) -> dict[str, Any]:
        """See harness.training.parts.Stateful."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See harness.training.parts.Stateful."""


class ConstantRate:
    """The learning rate does not change."""

    def step(self, valid_loss: float) -> None:
        """See Schedule."""

    def state_dict(self) -> dict[str, Any]:
        """See Schedule."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See Schedule."""


def make_schedule(optimizer: Optimizer, train: TrainSpec) -> Schedule:
    """The schedule of the suite. 'plateau' is that of Benka et al.'s code: any epoch whose validation loss is not below
    the best so far lowers the rate at once.
    """
    if train.schedule is None:
        return ConstantRate()
    return ReduceLROnPlateau(optimizer, factor=train.schedule.plateau.factor, patience=0, threshold=0.0)
