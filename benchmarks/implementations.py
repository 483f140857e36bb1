"""Ways to compute the loss of a Mixture, with which ours is compared.

Each takes the Mixture of a head, so that heads, inputs and projections are the same and only the loss differs. Each
returns (N,) nats.

Letters: N tokens, K mixtures, V words, E width of facets.
"""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psutil
import torch
from torch import Tensor
from torch.nn import functional

from harness.distributions import LOGIT_MAPS, Mixture
from harness.errors import ExecutionError
from harness.kernels import products
from harness.kernels.choice import FormChoice, using
from harness.kernels.products import Products
from harness.trial import routes

OURS = {"ours": "auto", "chunked": "chunked", "stored": "stored"}  # name -> as train.loss_form has it
EPSILON = 1e-8  # added to probabilities by the published codes
Way = tuple[str, str]  # precision and route of products


def published(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """The probabilities of all components, their weighted sum, and log(p + 1e-8).

    Source: Yang et al.'s zihangdai/mos, model.py (mixtures); Chang and McCallum's iesl/Softmax-CPR (partitions,
        sigsoftmax). The steps are theirs, the code is ours.
    """
    by_component = max(mixture.partitions) > 1 or mixture.logit_map is LOGIT_MAPS["sigsoftmax"]
    p_NV = _chang_probabilities(mixture) if by_component else _yang_probabilities(mixture)
    return functional.nll_loss((p_NV + EPSILON).log(), targets_N, reduction="none")


def cross_entropy(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """torch's cross-entropy of N K rows, mixed. For K = 1 this is the usual softmax loss."""
    if max(mixture.partitions) > 1:
        z_NKV = torch.stack(_component_logits(mixture), dim=1)
    else:
        z_NKV = functional.linear(mixture.facets_NFE, mixture.weight_VE, mixture.bias_V)
    u_rows = mixture.logit_map(z_NKV).flatten(0, 1)
    return _mixed(functional.cross_entropy(u_rows, _repeated(targets_N, mixture), reduction="none"), mixture)


def linear_cross_entropy(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """torch's linear_cross_entropy of N K rows, mixed; in chunks where torch's documentation says that they are a win:
    of at least d rows. On a CPU chunks of fewer take twenty times as long as no chunks.
    """
    facets, weight_VE, bias_V = _cast(mixture)
    options = torch.nn.LinearCrossEntropyOptions() if len(facets) >= facets.shape[-1] else None
    nll_rows = functional.linear_cross_entropy(
        facets, weight_VE, _repeated(targets_N, mixture), linear_bias=bias_V, reduction="none", options=options
    )
    return _mixed(nll_rows, mixture)


def liger(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Liger's fused linear cross-entropy for K = 1, (1,). For K > 1 its scaled form over N K rows, mixed: it has a
    gradient for each row, and no bias.
    """
    facets, weight_VE, bias_V = _cast(mixture)
    if len(mixture.partitions) == 1:
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        return liger_fused_linear_cross_entropy(facets, weight_VE, targets_N, bias_V).reshape(1)
    from liger_kernel.ops import LigerFusedLinearScaledCrossEntropyFunction

    nll_rows = LigerFusedLinearScaledCrossEntropyFunction.apply(facets, weight_VE, _repeated(targets_N, mixture))
    return _mixed(nll_rows, mixture)


def quack(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """QuACK's linear cross-entropy of N K rows, mixed."""
    from quack.linear_cross_entropy import linear_cross_entropy_func

    facets, weight_VE, bias_V = _cast(mixture)
    targets = _repeated(targets_N, mixture)
    return _mixed(linear_cross_entropy_func(facets, weight_VE, bias_V, targets, reduction="none"), mixture)


LOSSES: dict[str, Callable[[Mixture, Tensor], Tensor]] = {
    "published": published,
    "cross_entropy": cross_entropy,
    "torch": linear_cross_entropy,
    "liger": liger,
    "quack": quack,
}
PACKAGES = {"liger": "liger_kernel", "quack": "quack"}
ALL = ",".join([*OURS, *LOSSES])


def mean_loss(impl: str, mixture: Mixture, targets_BT: Tensor) -> Tensor:
    """() the mean loss by an implementation; by the method of the Mixture for ours."""
    if impl in OURS:
        return mixture.mean_nll(targets_BT)
    return LOSSES[impl](mixture, targets_BT.flatten()).float().mean()


def lacks(impl: str, mixture: Mixture, tokens: int) -> str:
    """Why an implementation cannot be measured on this machine; '' if it can."""
    device, num = mixture.facets_NFE.device, len(mixture.partitions)
    on_gpu = device.type == "cuda"
    if impl not in LOSSES:
        return "" if impl == "ours" or on_gpu else "GPUs only; on a CPU there is one form"
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else psutil.virtual_memory().available
    needed = 4 * 4 * tokens * num * len(mixture.weight_VE)  # four tensors of N K V floats
    plain = max(mixture.partitions) == 1 and mixture.logit_map is LOGIT_MAPS["identity"]
    package = PACKAGES.get(impl)
    if impl in ("published", "cross_entropy"):
        return f"needs about {needed / 2**30:.0f} GiB" if needed > 0.7 * free else ""
    if not plain:
        return "no partitions, no logit maps"
    if package and importlib.util.find_spec(package) is None:
        return "not installed"
    if package and not on_gpu and not (impl == "liger" and num > 1):
        return "GPUs only"
    return "no bias" if impl == "liger" and num > 1 and mixture.bias_V is not None else ""


def _yang_probabilities(mixture: Mixture) -> Tensor:
    """(N, V): one product for all components, one softmax over (N K, V), and the prior expanded to (N, K, V)."""
    p_NKV = functional.linear(mixture.facets_NFE, mixture.weight_VE, mixture.bias_V).softmax(-1)
    if mixture.log_prior_NK is None:
        return p_NKV[:, 0]
    return (p_NKV * mixture.log_prior_NK.exp()[..., None].expand_as(p_NKV)).sum(1)


def _chang_probabilities(mixture: Mixture) -> Tensor:
    """(N, V): a list of logits, which is also stacked because the authors return it for diagnostics; then a sum."""
    logits = _component_logits(mixture)
    stacked_KNV = torch.stack(logits)
    total_NV = 0
    for k, z_NV in enumerate(logits):
        if mixture.logit_map is LOGIT_MAPS["sigsoftmax"]:
            bent_NV = torch.exp(z_NV - z_NV.max(-1, keepdim=True)[0]) * (1e-20 + torch.sigmoid(z_NV))
            p_NV = bent_NV / bent_NV.sum(-1, keepdim=True)
        else:
            p_NV = z_NV.softmax(-1)
        total_NV = total_NV + (p_NV if mixture.log_prior_NK is None else p_NV * mixture.log_prior_NK[:, k, None].exp())
    del stacked_KNV  # kept in memory until here, because the authors return it
    return total_NV


def _component_logits(mixture: Mixture) -> list[Tensor]:
    """The (N, V) logits of each component. With P facets, the logits of word x come from facet x mod P."""
    logits, at = [], 0
    for P in mixture.partitions:
        owners = mixture.facets_NFE[:, at : at + P].unbind(1)
        bias = [None if mixture.bias_V is None else mixture.bias_V[p::P] for p in range(P)]
        slices = [functional.linear(f_NE, mixture.weight_VE[p::P], bias[p]) for p, f_NE in enumerate(owners)]
        z_NV = slices[0] if P == 1 else slices[0].new_empty(len(slices[0]), len(mixture.weight_VE))
        if P > 1:
            for p, slice_NV in enumerate(slices):
                z_NV[:, p::P] = slice_NV
        logits.append(z_NV)
        at += P
    return logits


def _repeated(targets_N: Tensor, mixture: Mixture) -> Tensor:
    return targets_N.repeat_interleave(len(mixture.partitions))


def _mixed(nll_rows: Tensor, mixture: Mixture) -> Tensor:
    """(N K,) nats of the components -> (N,) of the mixture."""
    nll_rows = nll_rows.to(torch.promote_types(nll_rows.dtype, torch.float32))
    if mixture.log_prior_NK is None:
        return nll_rows
    return -(mixture.log_prior_NK - nll_rows.view(-1, len(mixture.partitions))).logsumexp(1)


def _cast(mixture: Mixture) -> tuple[Tensor, Tensor, Tensor | None]:
    """(N K, E) facets, output matrix and bias in the type of products, for functions that autocast does not support."""
    device = mixture.facets_NFE.device.type
    autocast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if autocast else mixture.facets_NFE.dtype
    bias_V = None if mixture.bias_V is None else mixture.bias_V.to(dtype)
    return mixture.facets_NFE.flatten(0, 1).to(dtype), mixture.weight_VE.to(dtype), bias_V


@contextmanager
def arithmetic(impl: str, way: Way, device: torch.device) -> Iterator[None]:
    """Set precision and route of products. For our own code the precision applies to the kernels only, as in trials;
    for a baseline to all products, where bf16 is set by autocast.
    """
    precision, route = way
    with ExitStack() as stack:
        if impl in OURS:
            stack.enter_context(Products(route=route).switched(device))
            stack.enter_context(products.using(Products(precision, route)))
            stack.enter_context(using(FormChoice(pieces=OURS[impl])))
        else:
            stack.enter_context(Products(precision, route).switched(device))
            if precision == "bf16":
                stack.enter_context(torch.autocast(device.type, torch.bfloat16))
        yield


def ways(precisions: list[str], device: torch.device) -> list[Way]:
    """Every precision by this machine's route of products, float32 on a CPU also by torch's default. Raises
    ExecutionError for a precision that the device has not.
    """
    allowed = ("fp32", "tf32", "bf16") if device.type == "cuda" else ("fp32", "bf16")
    found = []
    for precision in precisions:
        if precision not in allowed:
            raise ExecutionError(f"--precision {precision}: expected {', '.join(allowed)} on {device.type}")
        route = routes.load_probe().route if device.type == "cpu" else "default"
        found += [(precision, each) for each in dict.fromkeys(["default", route][precision == "bf16" :])]
    return found
