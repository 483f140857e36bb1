"""Whether a form of the loss agrees with the equations in float64 on some tokens of a batch: loss and gradients.

The form computes the whole batch, with weight zero for all but these tokens, and the equations compute them alone.
Rounding an input changes a logit in proportion to it, so the bound on an error grows with the largest logit.
"""

import torch
from torch import Tensor

from harness.kernels import products, reference
from harness.kernels.forms import CHUNKS_OF_EQUATIONS, Form, differentiates, in_chunks
from harness.kernels.mixture import Tensors
from harness.kernels.products import Precision

# The relative error of float32 sums, some hundred roundings of 2^-24; of inputs that tensor cores truncate to tf32;
# of bfloat16, which is rounded to nearest.
ROUNDING: dict[Precision, float] = {"fp32": 1e-5, "tf32": 2.0**-10, "bf16": 2.0**-8}
TOKENS = 64  # that are compared
NAMES = ("facets", "prior", "matrix", "bias")


def fault_of(form: Form, mixture: Tensors, targets_N: Tensor, z_loss: float = 0.0) -> str:
    """Return what is wrong with a form on a batch, or '' where it agrees with the equations in float64."""
    N, device = len(targets_N), targets_N.device
    at_n = torch.linspace(0, N - 1, min(N, TOKENS), device=device).round().long()
    few = _in_float64(mixture, at_n)
    exact = _evaluated(CHUNKS_OF_EQUATIONS, few, targets_N[at_n], torch.arange(len(at_n), device=device), z_loss)
    found = _evaluated(form, mixture, targets_N, at_n, z_loss)
    precision = "bf16" if mixture.facets_NFE.dtype == torch.bfloat16 else products.current().precision
    for what, expected in exact.items():
        size = max(expected.abs().max().item(), _least_size(what, few))
        # an error of a logit is a relative error of its exponential; both inputs of a product may be truncated to tf32
        bound = ROUNDING[precision] * _largest_logit(few) * (2 if precision == "tf32" else 1)
        wrong = (found[what].double() - expected).abs().max().item() / size
        if not wrong <= bound:  # written so that NaN is an error, too
            return f"{what} is wrong by {wrong:.1e} ({precision}; at most {bound:.1e} is rounding)"
    return ""


def _evaluated(form: Form, mixture: Tensors, targets_N: Tensor, at_n: Tensor, z_loss: float) -> dict[str, Tensor]:
    """Name -> value of all that is compared, for the tokens `at_n`: without gradients their nll."""
    if not differentiates(mixture):
        return {"a token's nll": form.nll(mixture, targets_N)[at_n]}
    leaves = [each if each is None else each.detach().requires_grad_(each.requires_grad) for each in mixture.given]
    given = Tensors(*leaves, mixture.partitions, mixture.logit_map, mixture.log_epsilon)
    weight_N = torch.zeros(len(targets_N), dtype=mixture.wide, device=targets_N.device)
    weight_N[at_n] = 1 + torch.arange(len(at_n), device=at_n.device, dtype=weight_N.dtype) % 3  # not all alike
    weight_N /= weight_N.sum()
    if form.mean_nll is not None:
        loss = form.mean_nll(given, targets_N, weight_N, z_loss)
    else:
        loss_N = form.nll(given, targets_N)
        if z_loss:
            loss_N = loss_N + z_loss * in_chunks(reference.log_normaliser, given).square().mean(1)
        loss = (weight_N * loss_N).sum()
    wanted = {name: each for name, each in zip(NAMES, leaves, strict=True) if each is not None and each.requires_grad}
    found = {"the loss": loss.detach()}
    for name, gradient in zip(wanted, torch.autograd.grad(loss, list(wanted.values())), strict=True):
        found[f"the gradient of the {name}"] = gradient[at_n] if name in ("facets", "prior") else gradient
    return found


def _in_float64(mixture: Tensors, at_n: Tensor) -> Tensors:
    """The tokens `at_n` of a mixture. What requires a gradient still does."""

    def wide(each: Tensor | None, *at: Tensor) -> Tensor | None:
        return None if each is None else each.detach()[at].double().requires_grad_(each.requires_grad)

    facets_NFE, prior_NK, weight_VE, bias_V = mixture.given
    few = wide(facets_NFE, at_n), wide(prior_NK, at_n), wide(weight_VE), wide(bias_V)
    return Tensors(*few, mixture.partitions, mixture.logit_map, mixture.log_epsilon)


@torch.no_grad()
def _largest_logit(few: Tensors) -> float:
    """The largest absolute logit, at least 1."""
    return max(1.0, *(u_nV.abs().max().item() for u_nV in reference.component_logits(few)))


def _least_size(what: str, few: Tensors) -> float:
    """What an error is at least relative to: a nat, and of a gradient a hundredth of the largest that it can be."""
    if "gradient" not in what:
        return 1.0
    largest = 1.0
    if "facets" in what:
        largest = few.weight_VE.detach().abs().max().item()
    elif "matrix" in what:
        largest = few.facets_NFE.detach().abs().max().item()
    return max(0.01 * largest / len(few.facets_NFE), torch.finfo(torch.float32).tiny)
