"""The parts of training that have a state: what a checkpoint holds, and what a CUDA graph's warm-up must not change.

Training is a loop over parts. Each has `state_dict` and `load_state_dict`, as torch's modules and optimizers have. A
part that is in the dict `Training.parts` (harness/training/loop.py) is saved in checkpoints, loaded when a trial is
resumed, and restored after the warm-up of a CUDA graph.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from harness.random_streams import generator_states, set_generator_states


class Stateful(Protocol):
    """A part of training. The tensors that it has keep their memory: a CUDA graph reads and writes them there."""

    def state_dict(self) -> dict[str, Any]:
        """The state: tensors, and plain values, dicts, lists and tuples of them. It may share memory with the part."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the part to a state that `state_dict` returned; tensors that exist are written in place."""


Parts = Mapping[str, Stateful]


class ModelState:
    """The parameters and buffers of a model, including the buffers that torch's `state_dict` leaves out."""

    def __init__(self, model: nn.Module):
        self.model = model

    def state_dict(self) -> dict[str, Any]:
        weights = self.model.state_dict()
        return {"weights": weights, "buffers": {n: b for n, b in self.model.named_buffers() if n not in weights}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["weights"])
        for name, buffer in self.model.named_buffers():
            saved = state["buffers"].get(name)
            if saved is not None and saved.shape == buffer.shape:  # one made by a later call may be absent, or shorter
                buffer.copy_(saved)


class OptimizerState:
    """The optimizer's state and learning rates. Its other settings are the suite's and are not saved."""

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        return {
            "state": self.optimizer.state_dict()["state"],
            "lr": [float(group["lr"]) for group in self.optimizer.param_groups],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved, current = state["state"], self.optimizer.state_dict()
        if saved.keys() <= current["state"].keys():
            for index, values in current["state"].items():
                _write(values, saved.get(index, {}))
        else:
            self.optimizer.load_state_dict({"state": saved, "param_groups": current["param_groups"]})
        for group, lr in zip(self.optimizer.param_groups, state["lr"], strict=True):
            group["lr"].fill_(lr)


class Generators:
    """All global random generators: Python's, numpy's, and torch's of the CPU and of a device."""

    def __init__(self, device: torch.device):
        self.device = device

    def state_dict(self) -> dict[str, Any]:
        return generator_states(self.device)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_generator_states(state, self.device)


def step_parts(model: nn.Module, optimizer: Optimizer) -> dict[str, Stateful]:
    """The parts that every training step changes."""
    device = next(model.parameters()).device
    return {"model": ModelState(model), "optimizer": OptimizerState(optimizer), "generators": Generators(device)}


@contextmanager
def unchanged(parts: Parts) -> Iterator[None]:
    """Within it parts may change; afterwards each has the state that it had, its tensors in the same memory."""
    before = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
    try:
        yield
    finally:
        for name, part in parts.items():
            part.load_state_dict(before[name])


def _write(values: dict[str, Any], saved: dict[str, Any]) -> None:
    """Write saved tensors into those of one parameter's optimizer state, and zero where nothing is saved."""
    for name, value in values.items():
        if isinstance(value, Tensor):
            value.zero_() if saved.get(name) is None else value.copy_(saved[name])
