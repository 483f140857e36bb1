"""What heads and backbones must hold of their parameters alike."""

from torch import nn


def count(module: nn.Module) -> int:
    """Scalars in the parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def assert_all_trained(module: nn.Module) -> str:
    """After a backward pass every parameter has a finite gradient that is not all zero; returns their names."""
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, f"{name} gets no gradient"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"
        assert parameter.grad.abs().max() > 0, f"the gradient of {name} is all zero"
    return ", ".join(name for name, _ in module.named_parameters()) or "no parameters"


def assert_counts_agree(planned: nn.Module, built: nn.Module) -> str:
    """What was built on the meta device has as many parameters as what was really built: plans count there."""
    assert count(planned) == count(built), f"{count(planned)} parameters on the meta device, {count(built)} when built"
    return f"{count(built)} parameters"
