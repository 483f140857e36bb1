"""Implementations of the evaluation of a Mixture, with which ours is compared, and the arithmetic of each comparison.

Each takes the Mixture of a head, so heads, inputs and projections are the same, and only the evaluation differs. Each
returns (N,) nats, one value per token.

Letters: see harness/protocols.py.
"""

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import NamedTuple

import psutil
import torch
from torch import Tensor
from torch.nn import functional

from harness.benchmarks.record import OURS, PUBLISHED, Cell, Way
from harness.benchmarks.settings import Setting, mixtures
from harness.distributions import LOGIT_MAPS, Mixture
from harness.errors import ExecutionError
from harness.kernels import forms, products
from harness.kernels.forms import Form
from harness.kernels.products import Products, using

TARGET_ONLY, TORCH, COMPILED = "target-only", "torch", "compiled"
CHUNKED, STORED = f"{OURS}-chunked", f"{OURS}-stored"
EPSILON = 1e-8  # added to probabilities by the published codes
ROUTES = {"default": ("default",), "onednn": ("onednn",), "both": ("default", "onednn")}
Evaluation = Callable[[Mixture, Tensor], Tensor]


def published(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Compute the probabilities of all components, their weighted sum, and log(p + 1e-8).

    Source: Yang et al.'s zihangdai/mos, model.py (mixtures); Chang and McCallum's iesl/Softmax-CPR (partitions,
        sigsoftmax). The steps are theirs, the code is ours.
    """
    by_component = max(mixture.partitions) > 1 or mixture.logit_map is LOGIT_MAPS["sigsoftmax"]
    p_NV = _chang_probabilities(mixture) if by_component else _yang_probabilities(mixture)
    return functional.nll_loss((p_NV + EPSILON).log(), targets_N, reduction="none")


def log_space(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Compute the whole mixed distribution in log space, and then select the target's entry."""
    logp_NKV = _mapped_logits(mixture).log_softmax(-1)
    if mixture.log_prior_NK is not None:
        logp_NKV = logp_NKV + mixture.log_prior_NK[..., None]
    logp_NV = logp_NKV.logsumexp(1)
    return -logp_NV.gather(1, targets_N[:, None]).squeeze(1)


def target_only(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Mix torch's cross-entropy of N K rows. For K = 1 this is linear and F.cross_entropy, the usual softmax loss."""
    logits = _mapped_logits(mixture)
    rows_NK = functional.cross_entropy(logits.flatten(0, 1), _repeated(targets_N, mixture), reduction="none")
    return _mixed(rows_NK, mixture)


def torch_library(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Mix torch's linear_cross_entropy of N K rows, in chunks where torch's documentation says that they are a win: of
    at least d rows. On a CPU chunks of fewer take twenty times as long as no chunks.
    """
    facets, weight_VE, bias_V = _cast(mixture, _product_dtype(mixture))
    options = torch.nn.LinearCrossEntropyOptions() if len(facets) >= facets.shape[-1] else None
    targets = _repeated(targets_N, mixture)
    nll_rows = functional.linear_cross_entropy(
        facets, weight_VE, targets, linear_bias=bias_V, reduction="none", options=options
    )
    return _mixed(nll_rows.to(torch.promote_types(nll_rows.dtype, torch.float32)), mixture)


def cut_cross_entropy(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Mix Apple's cut cross-entropy of N K rows in its exact mode (without filtering of gradients). bf16 only."""
    from cut_cross_entropy import linear_cross_entropy

    facets, weight_VE, bias_V = _cast(mixture, torch.bfloat16)
    exact = {"reduction": "none", "filter_eps": None}
    nll_rows = linear_cross_entropy(facets, weight_VE, _repeated(targets_N, mixture), bias=bias_V, **exact)
    return _mixed(nll_rows.float(), mixture)


def liger(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Compute Liger's fused linear cross-entropy, (1,). For one component only: it has no gradient for single rows."""
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    facets, weight_VE, bias_V = _cast(mixture, _product_dtype(mixture))
    return liger_fused_linear_cross_entropy(facets, weight_VE, targets_N, bias_V).reshape(1)


def compiled(backend: str = "inductor") -> Evaluation:
    """Return `target_only` with torch.compile, which compiles it at the first call."""

    def of_tensors(tensors, targets_N, partitions, logit_map) -> Tensor:
        facets_NFE, log_prior_NK, weight_VE, bias_V = tensors
        prior = None if log_prior_NK is None else log_prior_NK[None]
        mixture = Mixture(facets_NFE[None], prior, weight_VE, bias_V, partitions=partitions, logit_map=logit_map)
        return target_only(mixture, targets_N)

    compiled_rows = torch.compile(of_tensors, dynamic=False, backend=backend)

    def evaluate(mixture: Mixture, targets_N: Tensor) -> Tensor:
        tensors = mixture.facets_NFE, mixture.log_prior_NK, mixture.weight_VE, mixture.bias_V
        return compiled_rows(tensors, targets_N, mixture.partitions, mixture.logit_map)

    return evaluate


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
    """Return the (N, V) logits of each component. With P facets, the logits of word x come from facet x mod P."""
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


def _mapped_logits(mixture: Mixture) -> Tensor:
    """(N, K, V) u = phi(z)."""
    if max(mixture.partitions) > 1:
        z_NKV = torch.stack(_component_logits(mixture), dim=1)
    else:
        z_NKV = functional.linear(mixture.facets_NFE, mixture.weight_VE, mixture.bias_V)
    return mixture.logit_map(z_NKV)


def _repeated(targets_N: Tensor, mixture: Mixture) -> Tensor:
    return targets_N.repeat_interleave(len(mixture.partitions))


def _mixed(nll_rows: Tensor, mixture: Mixture) -> Tensor:
    """(N K,) nats of the components -> (N,) of the mixture."""
    if mixture.log_prior_NK is None:
        return nll_rows
    return -(mixture.log_prior_NK - nll_rows.view(-1, len(mixture.partitions))).logsumexp(1)


def _cast(mixture: Mixture, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
    """(N K, E) facets, output matrix and bias in one type, for functions that autocast does not support."""
    bias_V = None if mixture.bias_V is None else mixture.bias_V.to(dtype)
    return mixture.facets_NFE.flatten(0, 1).to(dtype), mixture.weight_VE.to(dtype), bias_V


def _product_dtype(mixture: Mixture) -> torch.dtype:
    device = mixture.facets_NFE.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else mixture.facets_NFE.dtype


class Implementation(NamedTuple):
    """How a mixture is evaluated, and what that needs.

    Args:
        make: returns the evaluation; None: the methods of Mixture.
        pieces: of our own code: the form of the loss, as train.loss_form has it; '' for others.
        tensors: about how many tensors of N K V floats exist at once.
        library: whether it is not our code: if it fails, its cell has no value.
        plain: whether it has no partitions and no logit map.
        mixes: whether it has more than one component.
        precision: the only one that it has, if there is only one.
    """

    make: Callable[[], Evaluation] | None
    pieces: str = ""
    tensors: int = 0
    library: bool = False
    package: str = ""
    plain: bool = False
    mixes: bool = True
    precision: str | None = None


IMPLEMENTATIONS = {
    OURS: Implementation(None, pieces="auto"),
    CHUNKED: Implementation(None, pieces="chunked"),
    STORED: Implementation(None, pieces="stored", tensors=1),
    PUBLISHED: Implementation(lambda: published, tensors=4),
    "log-space": Implementation(lambda: log_space, tensors=5),
    TARGET_ONLY: Implementation(lambda: target_only, tensors=3),
    TORCH: Implementation(lambda: torch_library, library=True, plain=True),
    COMPILED: Implementation(compiled, tensors=3, library=True),
    "liger": Implementation(lambda: liger, library=True, package="liger_kernel", plain=True, mixes=False),
    "cce": Implementation(
        lambda: cut_cross_entropy, library=True, package="cut_cross_entropy", plain=True, precision="bf16"
    ),
}


def lacks(cell: Cell, mixture: Mixture, setting: Setting) -> str:
    """Return why a cell cannot be measured on this machine; '' if it can."""
    how, device = IMPLEMENTATIONS[cell.impl], mixture.facets_NFE.device
    needed = 4 * how.tensors * setting.tokens * mixtures(cell.head) * setting.vocab
    compilers = (os.environ.get("CXX"), "g++", "clang++", "c++")  # Inductor needs one for the CPU
    compiles = device.type == "cuda" or any(shutil.which(name) for name in compilers if name)
    reasons = {
        f"needs about {needed / 2**30:.0f} GiB": needed and needed > 0.7 * free_memory(device),
        "CUDA only": how.package and device.type != "cuda",
        "not installed": how.package and importlib.util.find_spec(how.package) is None,
        "not in this torch": cell.impl == TORCH and not hasattr(functional, "linear_cross_entropy"),
        "no C++ compiler": cell.impl == COMPILED and not compiles,
        "no choice of forms": how.pieces not in ("", "auto") and how.pieces not in _pieces(cell.impl, mixture),
        "no mixtures": not how.mixes and len(mixture.partitions) > 1,
        "no partitions": how.plain and max(mixture.partitions) > 1,
        "no logit map": how.plain and mixture.logit_map is not LOGIT_MAPS["identity"],
        f"{how.precision} only": how.precision not in (None, cell.precision),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _pieces(impl: str, mixture: Mixture) -> set[str]:
    """The pieces of the forms that can train a mixture, where there is a choice."""
    gradients, device = forms.differentiates(mixture), mixture.facets_NFE.device
    fitting = {form.pieces for form in forms_of(impl, device) if form.pieces and form.fits(mixture, gradients)}
    return fitting if gradients and len(fitting) > 1 else set()


def forms_of(impl: str, device: torch.device) -> Sequence[Form]:
    """The forms of the loss that an implementation of ours has on a device. A trial on a CPU stores the logits of a
    chunk only; ours-stored measures what all of them would take.
    """
    if impl != STORED or device.type != "cpu":
        return forms.FORMS
    return [replace(form, fits=_in_many_chunks) if form is forms.STORED else form for form in forms.FORMS]


def _in_many_chunks(mixture: Mixture, gradients: bool) -> bool:
    chunk = forms.tokens_per_chunk(mixture.weight_VE, mixture.partitions)
    return gradients and forms.has_chunks(mixture) and chunk < len(mixture.facets_NFE)


def free_memory(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available


@contextmanager
def arithmetic(cell: Cell, device: torch.device) -> Iterator[None]:
    """Set the precision and route of products within the block. For our own code, the precision applies to the kernels
    only, as in trials. For a baseline it applies to all products; bf16 is set by autocast.
    """
    products = Products(cell.precision, cell.route)
    with ExitStack() as stack:
        if IMPLEMENTATIONS[cell.impl].pieces:
            stack.enter_context(Products(route=cell.route).switched(device))
            stack.enter_context(using(products))
        else:
            stack.enter_context(products.switched(device))
            if cell.precision == "bf16":
                stack.enter_context(torch.autocast(device.type, torch.bfloat16))
        yield


def checked_impls(names: tuple[str, ...], *, compile_too: bool) -> tuple[str, ...]:
    """Return the implementations to measure, ours first. Raises ExecutionError for an unknown name."""
    chosen = tuple(name for name in IMPLEMENTATIONS if name != COMPILED) if names in ((), ("all",)) else names
    for name in chosen:
        if name not in IMPLEMENTATIONS:
            raise ExecutionError(f"--impl {name}: expected {', '.join(IMPLEMENTATIONS)}")
    wanted = {*chosen, OURS} | ({COMPILED} if compile_too else set())
    return tuple(name for name in IMPLEMENTATIONS if name in wanted)


def checked_ways(precisions: tuple[str, ...], route: str, device: torch.device) -> list[Way]:
    """The pairs (precision, route) to measure: every precision with every route; bf16 only with the last one, since the
    route makes little difference for it. Raises ExecutionError for a pair that the device does not support.
    """
    allowed = ("fp32", "tf32", "bf16") if device.type == "cuda" else ("fp32", "bf16")
    if not precisions:
        raise ExecutionError(f"--precision: expected some of {', '.join(allowed)} on {device.type}")
    for precision in precisions:
        if precision not in allowed:
            raise ExecutionError(f"--precision {precision}: expected {', '.join(allowed)} on {device.type}")
    if route not in ROUTES:
        raise ExecutionError(f"--route {route}: expected default, onednn or both")
    exact = device.type == "cpu" and route != "default" and products.load_probe().exact
    if device.type == "cpu" and route == "onednn" and not exact:
        raise ExecutionError("--route onednn: its products are not exact in float32 on this machine (harness doctor)")
    routes = ROUTES[route] if exact else ROUTES["default"]
    return [(p, r) for p in precisions for r in (routes[-1:] if p == "bf16" else routes)]
