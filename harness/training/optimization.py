"""The optimiser of a suite, and how its learning rate changes."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from harness.plan.specs import TrainSpec


def make_optimizer(parameters: Iterator[nn.Parameter], train: TrainSpec) -> Optimizer:
    """torch's optimizer of the suite's name and settings, in its fused form. The learning rate is a tensor beside the
    parameters, where a captured step reads it.
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


def make_schedule(optimizer: Optimizer, train: TrainSpec) -> ReduceLROnPlateau | None:
    """Plateau as in Benka et al.'s code: any epoch that does not beat the best so far lowers the rate at once."""
    if train.schedule is None:
        return None
    return ReduceLROnPlateau(optimizer, factor=train.schedule.plateau.factor, patience=0, threshold=0.0)
