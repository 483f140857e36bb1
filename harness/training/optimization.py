"""The optimizer of a suite."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.optim import Optimizer

from harness.plan.specs import TrainSpec
from harness.training.adamw import HuggingFaceAdamW


def make_optimizer(parameters: Iterator[nn.Parameter], train: TrainSpec) -> Optimizer:
    """The optimizer of the suite with its settings; torch's are in their fused form. The learning rate is a tensor on
    the parameters' device, where a captured step reads it.
    """
    parameters = list(parameters)
    device = parameters[0].device
    on_gpu = device.type == "cuda"
    lr = torch.tensor(train.lr, dtype=torch.float32 if on_gpu else torch.float64, device=device)  # what fused takes
    if train.optimizer == "adamw_huggingface":
        return HuggingFaceAdamW(parameters, lr=lr, betas=train.betas, eps=train.eps, weight_decay=train.weight_decay)
    shared = {"lr": lr, "weight_decay": train.weight_decay, "fused": True}
    if train.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=train.momentum, **shared)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[train.optimizer]
    capturable = on_gpu and train.cuda_graph != "off"
    return kind(parameters, betas=train.betas, eps=train.eps, capturable=capturable, **shared)


def clear_momentum(optimizer: Optimizer) -> None:
    """Set the momentum of torch's SGD to zero, in place. The next step is then that of a new optimizer."""
    for state in optimizer.state.values():
        if state.get("momentum_buffer") is not None:
            state["momentum_buffer"].zero_()
