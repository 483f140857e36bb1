"""Functions that raise Nonconforming if a condition does not hold. Unlike `assert` they also work under `python -O`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from harness.model import changed_since, fingerprint

MAX_NAMES = 20  # the largest number of parameters that are listed by name
STEP = 0.01  # of every parameter, as in the first step of Adam with this learning rate


class Nonconforming(AssertionError):
    """A check that failed. The message says what was found and what was expected."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Nonconforming(message)


def require_module(built: Any) -> None:
    """Require that what a constructor has made is a module of torch."""
    name = type(built).__name__
    require(isinstance(built, nn.Module), f"{name} is no module of torch: write class {name}(nn.Module)")


def count(module: nn.Module) -> int:
    """Return the number of scalars in the parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def require_all_trained(module: nn.Module, *losses: Callable[[], Tensor]) -> str:
    """Require that every parameter gets a finite gradient of the sum of losses, and one that is not
    zero everywhere after one step of training: parameters before a layer that starts at zero have
    no other one at the start.

    Returns: the names of the parameters, or their number if there are many.
    """
    for _ in range(2):
        module.zero_grad()
        for loss in losses:
            loss().backward()
        for name, parameter in module.named_parameters():
            require(parameter.grad is not None, f"{name} gets no gradient")
            require(bool(parameter.grad.isfinite().all()), f"the gradient of {name} is not finite")
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.sub_(STEP * parameter.grad.sgn())
    for name, parameter in module.named_parameters():
        require(bool(parameter.grad.abs().max() > 0), f"the gradient of {name} is all zero, also after one step")
    names = [name for name, _ in module.named_parameters()]
    return (", ".join(names) or "no parameters") if len(names) <= MAX_NAMES else f"{len(names)} tensors"


def require_nothing_learned(module: nn.Module, score: Callable[[], Any]) -> str:
    """Require that a module in evaluation mode is after it has scored a text as it was before, as a trial does."""
    before = fingerprint(module)
    with torch.no_grad():
        score()
    changed = changed_since(before, module)
    require(not changed, f"{changed} changed in evaluation; where `self.training` is False it must stay as it is")
    return "nothing changed"


def require_equal_counts(planned: nn.Module, built: nn.Module) -> str:
    """Require that a module on the meta device has as many parameters as the module on the CPU."""
    on_meta, really = count(planned), count(built)
    require(on_meta == really, f"{on_meta} parameters on the meta device, {really} when built")
    return f"{really} parameters"
