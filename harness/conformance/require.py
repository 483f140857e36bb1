"""Checks that hold under `python -O` too, where `assert` does not."""

from torch import nn

MAX_NAMES = 20  # of parameters, in a report


class Nonconforming(AssertionError):
    """What a component does and what was expected of it."""


def require(condition: bool, message: str) -> None:
    """Raise Nonconforming unless the condition holds."""
    if not condition:
        raise Nonconforming(message)


def count(module: nn.Module) -> int:
    """Scalars in the parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def require_all_trained(module: nn.Module) -> str:
    """After a backward pass every parameter has a finite gradient that is not all zero; returns their names, or how
    many there are.
    """
    for name, parameter in module.named_parameters():
        require(parameter.grad is not None, f"{name} gets no gradient")
        require(bool(parameter.grad.isfinite().all()), f"the gradient of {name} is not finite")
        require(bool(parameter.grad.abs().max() > 0), f"the gradient of {name} is all zero")
    names = [name for name, _ in module.named_parameters()]
    return (", ".join(names) or "no parameters") if len(names) <= MAX_NAMES else f"{len(names)} tensors"


def require_equal_counts(planned: nn.Module, built: nn.Module) -> str:
    """What was built on the meta device has as many parameters as what was really built: plans count there."""
    on_meta, really = count(planned), count(built)
    require(on_meta == really, f"{on_meta} parameters on the meta device, {really} when built")
    return f"{really} parameters"
