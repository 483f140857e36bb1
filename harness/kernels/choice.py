"""Which form of the loss runs: on a GPU only one that agreed with the equations on this trial's own batch.

The forms, the fastest first: two with Triton's kernels, the evaluation in chunks by torch's operations, and the plain
equations. A form of the first three is checked on a GPU when a shape is first met, never while a CUDA graph is
captured: it computes the whole batch, with weight zero for all but TOKENS tokens, and the equations compute those
tokens in float64. The loss, each token's nll and all gradients have to agree, twice: on the batch as it is, and with
the facets scaled until a component is nearly certain of a word, where differences of large logits are taken.
`check_again` repeats the check of the nll with fewer tokens; each evaluation of a split begins with it.

A form that disagrees or raises is left out from then on. On the CPU nothing is checked: the tests do that.
"""

import importlib.util
import logging
import math
import os
import sys
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from harness.kernels import products, reference
from harness.kernels.chunked import Lean, TokenNLL, WeightedNLL, fused_nll, tokens_per_chunk
from harness.kernels.mixture import Bend, SoftCap, Tensors, identity, in_sizes_only
from harness.kernels.products import Precision
from harness.kernels.rows import Rows, combine_rows_

DEVICES = ("cpu", "cuda")  # a test adds the meta device, on which tensors have no content
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
TOKENS, FEWER_TOKENS = 256, 64
# The relative error of a product's inputs: tensor cores may truncate to tf32; bfloat16 is rounded to nearest. In
# float32, of sums: some hundred roundings of 2^-24. For comparison: one missing word of 8,209 makes an error of 1e-4.
ROUNDING: dict[Precision, float] = {"fp32": 1e-5, "tf32": 2.0**-10, "bf16": 2.0**-8}
LOWEST_NLL = -1e-5  # as in harness/records/record.py, which is without torch; a test compares them
CERTAIN = 1e-5  # nats, of the most probable word of a component
DOUBLINGS = 20
NLL = "a token's nll"
NAMES = ("the facets", "the prior", "the output matrix", "the bias")

LOGGER = logging.getLogger(__name__)
MeanNLL = Callable[[Tensors, Tensor, Tensor, float], Tensor]  # mixture, targets, weights with sum 1, z_loss -> ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to compute the loss of a mixture.

    Args:
        what, instead: what it is, and what runs where it is left out, for people.
        fits: whether it is made for a mixture; the second argument says whether gradients are wanted.
        mean_nll: for given weights; None: the weighted mean of `nll` is taken.
        nll: (N,) from mixture and targets, with gradients where the mixture's tensors require them.
        checked: whether it has to agree with the equations; the equations themselves have not.
    """

    name: str
    what: str
    instead: str = "torch's own operations run instead"
    fits: Callable[[Tensors, bool], bool]
    mean_nll: MeanNLL | None
    nll: Callable[[Tensors, Tensor], Tensor]
    checked: bool = True


def differentiates(mixture: Tensors) -> bool:
    """Return whether gradients are wanted."""
    return torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in mixture.given)


def lean(mixture: Tensors, z_loss: float = 0.0, combine: Callable[..., Rows] = combine_rows_) -> partial[Lean]:
    """Return a function that makes the evaluation in chunks from facets, log prior, weight, bias and targets."""
    return partial(
        Lean,
        partitions=mixture.partitions,
        logit_map=mixture.logit_map,
        log_epsilon=mixture.log_epsilon,
        products=products.current(),
        z_loss=z_loss,
        combine_rows_=combine,
    )


def by_rows(
    name: str, what: str, *, combine: Callable[..., Rows], fits: Callable[[Tensors, bool], bool], **more
) -> Form:
    """Return the evaluation in chunks with this code between its matrix products (harness/kernels/rows.py)."""

    def mean_nll(mixture: Tensors, targets_N: Tensor, weight_N: Tensor, z_loss: float) -> Tensor:
        return WeightedNLL.apply(lean(mixture, z_loss, combine), weight_N, targets_N, *mixture.given)

    def nll(mixture: Tensors, targets_N: Tensor) -> Tensor:
        make = lean(mixture, combine=combine)
        if differentiates(mixture):
            return TokenNLL.apply(make, targets_N, *mixture.given)
        return make(*mixture.given, targets_N=targets_N).nll()

    return Form(name=name, what=what, fits=fits, mean_nll=mean_nll, nll=nll, **more)


def by_log_sums(
    name: str, what: str, *, log_sum_exp: Callable[..., Tensor], fits: Callable[[Tensors, bool], bool]
) -> Form:
    """Return the evaluation by a kernel that sums logits without storing them, where no gradients are wanted."""

    def nll(mixture: Tensors, targets_N: Tensor) -> Tensor:
        return fused_nll(lean(mixture)(*mixture.given, targets_N=targets_N), log_sum_exp)

    return Form(name=name, what=what, fits=fits, mean_nll=None, nll=nll)


def in_chunks(evaluate: Callable[..., Tensor], mixture: Tensors, *per_token: Tensor) -> Tensor:
    """Evaluate the reference one chunk at a time. A chunk keeps only its facets for the backward pass."""
    size = tokens_per_chunk(mixture.weight_VE, len(mixture.partitions))
    chunks = (slice(i, i + size) for i in range(0, len(mixture.facets_NFE), size))
    multiplied = products.current()

    def evaluated(part: Tensors, *given_n: Tensor) -> Tensor:
        with products.using(multiplied):  # the backward pass calls this again, on a GPU in another thread
            return evaluate(part, *given_n)

    found = [
        checkpoint(evaluated, mixture.part(c), *(given_N[c] for given_N in per_token), use_reentrant=False)
        for c in chunks
    ]
    return torch.cat(found)


@cache
def has_triton() -> bool:
    """Return whether Triton can be imported. The extra `gpu` installs it, and so do torch's CUDA builds."""
    return importlib.util.find_spec("triton") is not None


def has_chunks(mixture: Tensors) -> bool:
    """Return whether there are tokens, of a type and on a device that can be evaluated in chunks."""
    known = mixture.facets_NFE.device.type in DEVICES and mixture.facets_NFE.dtype in DTYPES
    return known and len(mixture.facets_NFE) > 0 and not _reference_only.get()


def is_lean(mixture: Tensors) -> bool:
    """Return whether the evaluation in chunks by torch's operations knows a mixture and is not left out."""
    return _knows(mixture) and LEAN.name not in current().left_out


def _knows(mixture: Tensors) -> bool:
    return has_chunks(mixture) and (mixture.logit_map is identity or isinstance(mixture.logit_map, Bend | SoftCap))


def _on_triton(mixture: Tensors) -> bool:
    there = mixture.facets_NFE.device.type == "cuda" and has_triton() and not in_sizes_only()
    return there and mixture.wide == torch.float32 and _knows(mixture)


def _triton_rows(*given: object) -> Rows:
    from harness.kernels.triton_rows import combine_rows_ as combine

    return combine(*given)


def _triton_log_sums(*given: Tensor | None, precision: Precision) -> Tensor:
    from harness.kernels.triton_evaluation import fused_log_sum_exp

    return fused_log_sum_exp(*given, precision=precision)


LOG_SUMS = by_log_sums(
    "log_sum_exp",
    "the Triton kernel for evaluation",
    log_sum_exp=_triton_log_sums,
    fits=lambda mixture, gradients: _on_triton(mixture) and not gradients and mixture.logit_map is identity,
)
ROWS = by_rows(
    "rows",
    "the Triton kernel for training",
    combine=_triton_rows,
    fits=lambda mixture, gradients: _on_triton(mixture),
)
LEAN = by_rows(
    "lean",
    "the evaluation of mixtures in chunks",
    combine=combine_rows_,
    fits=lambda mixture, gradients: _knows(mixture),
    instead="mixtures are evaluated by the plain equations instead",
)
CHUNKS_OF_EQUATIONS = Form(
    name="equations in chunks",
    what="the plain equations, in chunks of tokens that the backward pass computes again",
    fits=lambda mixture, gradients: has_chunks(mixture),
    mean_nll=None,
    nll=partial(in_chunks, reference.nll),
    checked=False,
)
EQUATIONS = Form(
    name="equations",
    what="the plain equations",
    fits=lambda mixture, gradients: True,
    mean_nll=None,
    nll=reference.nll,
    checked=False,
)
FORMS = (LOG_SUMS, ROWS, LEAN, CHUNKS_OF_EQUATIONS, EQUATIONS)


class Choice:
    """The forms that a trial takes: which of them agreed on which shape, and which are left out.

    Args:
        left_out: name -> reason, of the parts for GPUs that do not run: those of an earlier part of the trial.
        trying: makes a context within which a part is tried. What it writes down before is there when the process ends
            within it.
        log: receives a sentence when a part is left out.
        forms: in the order in which they are asked.
        devices: types of devices on which forms are checked.
    """

    def __init__(
        self,
        left_out: Mapping[str, str] | None = None,
        *,
        trying: Callable[[str], AbstractContextManager[None]] = lambda name: nullcontext(),
        log: Callable[[str], None] = LOGGER.warning,
        forms: Sequence[Form] = FORMS,
        devices: Sequence[str] = ("cuda",),
    ):
        self.left_out = dict(left_out or {})
        self.trying, self.log, self.forms, self.devices = trying, log, forms, devices
        self._agreed: set[Hashable] = set()
        self._again: set[Hashable] = set()  # what agreed before and is to be checked once more

    def form(self, mixture: Tensors, targets_N: Tensor, z_loss: float = 0.0) -> Form:
        """Return the first form that fits, is not left out and agrees.

        Raises: RuntimeError for a shape that is first met while a CUDA graph is captured.
        """
        gradients = differentiates(mixture)
        checks = mixture.facets_NFE.device.type in self.devices and not in_sizes_only()
        for form in self.forms:
            if form.name in self.left_out or not form.fits(mixture, gradients):
                continue
            if not (checks and form.checked) or self._agrees(form, mixture, targets_N, z_loss):
                return form
        raise AssertionError("the equations fit every mixture")

    def check_again(self) -> None:
        """Check the nll of every shape that is evaluated without gradients once more when it is next met."""
        self._again = {key for key in self._agreed if not key[1]}

    def leave_out(self, name: str, reason: str) -> None:
        """Note that a part for GPUs does not run, and why."""
        self.left_out[name] = reason
        self.log(self._sentence(name))

    def sentences(self) -> tuple[str, ...]:
        """Return a sentence for each part that is left out: what it is, the reason, and what runs instead."""
        return tuple(map(self._sentence, self.left_out))

    def _sentence(self, name: str) -> str:
        parts = {form.name: (form.what, form.instead) for form in reversed(self.forms)}
        parts["graph"] = ("the CUDA graph of the training step", "steps run operation by operation instead")
        what, instead = parts.get(name, (name, "other code runs instead"))
        return f"Left out on this device: {what}, since {self.left_out[name]}; {instead}"

    def tried(self, name: str, attempt: Callable[[], str], device: torch.device) -> str:
        """Return what is wrong with a part, as `attempt` says or raises, and leave the part out; '' when it is right.

        Raises: what is no fault of the part: torch.OutOfMemoryError.
        """
        try:
            with self.trying(name):
                fault = attempt()
                if fault == "" and device.type == "cuda":
                    torch.cuda.synchronize(device)  # an error of a kernel shows when it has run
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # any error means that the part does not work here
            fault = f"it raised {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            end_if_lost(device)
        if fault:
            self.leave_out(name, fault)
        return fault

    def _agrees(self, form: Form, mixture: Tensors, targets_N: Tensor, z_loss: float) -> bool:
        key = (form.name, differentiates(mixture), *_shape(mixture, z_loss))
        if key in self._agreed and key not in self._again:
            return True
        if _captures(mixture):
            if key in self._agreed:
                return True
            raise RuntimeError("a mixture of another shape is evaluated for the first time while a graph is captured")
        whole = key not in self._agreed
        tokens = TOKENS if whole else FEWER_TOKENS

        def attempt() -> str:
            return fault_of(form, mixture, targets_N, z_loss, tokens=tokens, certain=whole)

        fault = self.tried(form.name, attempt, mixture.facets_NFE.device)
        self._again.discard(key)
        if not fault:
            self._agreed.add(key)
        return not fault


_of_process = Choice()
_current: ContextVar[Choice | None] = ContextVar("choice", default=None)
_reference_only: ContextVar[bool] = ContextVar("reference_only", default=False)


def current() -> Choice:
    """Return the choice that `using` has set; outside of it one for the whole process."""
    return _current.get() or _of_process


@contextmanager
def using(choice: Choice) -> Iterator[None]:
    """Choose forms by `choice` within the block."""
    token = _current.set(choice)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def reference_only() -> Iterator[None]:
    """Evaluate everything by the reference within the block: to check the other forms, or to measure them."""
    token = _reference_only.set(True)
    try:
        yield
    finally:
        _reference_only.reset(token)


def chosen(mixture: Tensors, targets_N: Tensor, z_loss: float = 0.0) -> Form:
    """Return the form that computes the loss of a mixture."""
    return current().form(mixture, targets_N, z_loss)


def check_again() -> None:
    """Check the nll of every shape that is evaluated without gradients once more when it is next met, on a GPU."""
    current().check_again()


def fault_of(
    form: Form, mixture: Tensors, targets_N: Tensor, z_loss: float = 0.0, *, tokens: int = TOKENS, certain: bool = True
) -> str:
    """Return what is wrong with a form on a batch, or '' where it agrees with the equations in float64.

    Args:
        tokens: how many of the batch are compared.
        certain: compare also with facets that are scaled until a word is nearly certain.
    """
    N = len(targets_N)
    at_n = torch.linspace(0, N - 1, min(N, tokens), device=targets_N.device).round().long()
    gradients = differentiates(mixture)
    cases = [("as it is", mixture, targets_N)]
    if certain:
        cases.append(("with a nearly certain word", *_certain(mixture, targets_N, at_n)))
    for name, given, targets in cases:
        few, targets_n = _in_float64(given, at_n), targets[at_n]
        every_n = torch.arange(len(at_n), device=at_n.device)
        exact = _evaluated(CHUNKS_OF_EQUATIONS, few, targets_n, every_n, gradients, z_loss)
        found = _evaluated(form, given, targets, at_n, gradients, z_loss)
        precision = "bf16" if given.facets_NFE.dtype == torch.bfloat16 else products.current().precision
        bound = ROUNDING[precision] * max(1.0, _largest_logit(few))  # an error of a logit grows with the logit
        for what, expected in exact.items():
            error = _error(found[what], expected, _least_size(what, few))
            if not error <= bound:  # written so that NaN is an error, too
                return (
                    f"{what} is wrong by {error:.1e} ({precision}, the batch {name}; at most {bound:.1e} is rounding)"
                )
        lowest = found[NLL].min().item()
        if not lowest >= LOWEST_NLL - (given.log_epsilon or 0.0):
            return f"{NLL} is {lowest:.1e}, below 0 ({precision}, the batch {name})"
    return ""


def _evaluated(
    form: Form, mixture: Tensors, targets_N: Tensor, at_n: Tensor, gradients: bool, z_loss: float
) -> dict[str, Tensor]:
    """Name -> value of everything that is compared, for the tokens `at_n` of a batch."""
    leaves = [
        each if each is None else each.detach().requires_grad_(gradients and each.requires_grad)
        for each in mixture.given
    ]
    wanted = {name: each for name, each in zip(NAMES, leaves, strict=True) if each is not None and each.requires_grad}
    given = Tensors(*leaves, mixture.partitions, mixture.logit_map, mixture.log_epsilon)
    found: dict[str, Tensor] = {}
    with torch.set_grad_enabled(gradients):
        nll_N = form.nll(given, targets_N)
        found[NLL] = nll_N.detach()[at_n]
        if not gradients:
            return found
        weight_N = torch.zeros_like(nll_N)
        weight_N[at_n] = 1 + torch.arange(len(at_n), device=at_n.device, dtype=nll_N.dtype) % 3
        signed_N = weight_N - 2 * (weight_N == 2).to(weight_N.dtype) * weight_N
        losses = {"": _mean_nll(form, given, targets_N, weight_N / weight_N.sum(), z_loss)}
        found["the loss"] = losses[""].detach()
        losses[", by tokens"] = (nll_N * (signed_N / weight_N.sum())).sum()
        for suffix, loss in losses.items():
            for name, gradient in zip(wanted, torch.autograd.grad(loss, list(wanted.values())), strict=True):
                part = gradient[at_n] if name in NAMES[:2] else gradient
                found[f"the gradient of {name}{suffix}"] = part
    return found


def _mean_nll(form: Form, given: Tensors, targets_N: Tensor, weight_N: Tensor, z_loss: float) -> Tensor:
    if form.mean_nll is not None:
        return form.mean_nll(given, targets_N, weight_N, z_loss)
    loss_N = form.nll(given, targets_N)
    if z_loss:
        loss_N = loss_N + z_loss * in_chunks(reference.log_normaliser, given).square().mean(1)
    return (weight_N * loss_N).sum()


def _in_float64(mixture: Tensors, at_n: Tensor) -> Tensors:
    """The tokens `at_n` of a mixture. What requires a gradient still does."""

    def wide(each: Tensor | None, *at: Tensor) -> Tensor | None:
        return None if each is None else each.detach()[at].double().requires_grad_(each.requires_grad)

    facets_NFE, prior_NK, weight_VE, bias_V = mixture.given
    few = wide(facets_NFE, at_n), wide(prior_NK, at_n), wide(weight_VE), wide(bias_V)
    return Tensors(*few, mixture.partitions, mixture.logit_map, mixture.log_epsilon)


@torch.no_grad()
def _certain(mixture: Tensors, targets_N: Tensor, at_n: Tensor) -> tuple[Tensors, Tensor]:
    """The batch with facets that are scaled until a component is nearly certain of a word, and such words as the
    targets of half of the tokens `at_n`.
    """
    few, scale = _in_float64(mixture, at_n), 1.0
    cap = 0.9 * mixture.logit_map.c if isinstance(mixture.logit_map, SoftCap) else math.inf  # beyond it slopes vanish
    for _ in range(DOUBLINGS):
        scaled = few.changed(facets_NFE=scale * few.facets_NFE)
        top_n, top_logp_n = _most_certain(scaled)
        if top_logp_n.max() > -CERTAIN or _largest_logit(scaled) > cap:
            break
        scale *= 2
    targets_N, certain_n = targets_N.clone(), top_logp_n.argsort(descending=True)[: (len(at_n) + 1) // 2]
    targets_N[at_n[certain_n]] = top_n[certain_n]
    facets_NFE = (scale * mixture.facets_NFE.detach()).requires_grad_(mixture.facets_NFE.requires_grad)
    return mixture.changed(facets_NFE=facets_NFE), targets_N


def _chunks(mixture: Tensors) -> Iterator[Tensors]:
    size = tokens_per_chunk(mixture.weight_VE, len(mixture.partitions))
    return (mixture.part(slice(i, i + size)) for i in range(0, len(mixture.facets_NFE), size))


def _most_certain(mixture: Tensors) -> tuple[Tensor, Tensor]:
    """(n,) the word that one of the components of a token is the most certain of, and its log-probability there."""
    found = []
    for part in _chunks(mixture):
        logp_nK, word_nK = zip(
            *(u_nV.log_softmax(-1).max(-1) for u_nV in reference.component_logits(part)), strict=True
        )
        logp_n, k_n = torch.stack(logp_nK).max(0)
        found.append((torch.stack(word_nK).gather(0, k_n[None])[0], logp_n))
    words, logps = zip(*found, strict=True)
    return torch.cat(words), torch.cat(logps)


@torch.no_grad()
def _largest_logit(mixture: Tensors) -> float:
    largest = [u.abs().max() for part in _chunks(mixture) for u in reference.component_logits(part)]
    return torch.stack(largest).max().item()


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


def _error(value: Tensor, expected: Tensor, least_size: float) -> float:
    """The largest error relative to the largest entry."""
    size = max(expected.detach().abs().max().item(), least_size)
    return (value.detach().double() - expected.detach()).abs().max().item() / size


def _shape(mixture: Tensors, z_loss: float) -> tuple[Hashable, ...]:
    """All that decides which code runs."""
    tensors = (
        each if each is None else (each.shape, each.dtype, each.device, each.requires_grad) for each in mixture.given
    )
    return (*tensors, mixture.partitions, mixture.logit_map, mixture.log_epsilon, bool(z_loss), products.current())


def _captures(mixture: Tensors) -> bool:
    return mixture.facets_NFE.is_cuda and torch.cuda.is_current_stream_capturing()


def end_if_lost(device: torch.device) -> None:
    """End this process if its GPU cannot be used any more: an error of a GPU persists in its process. The next one
    finds the name of the part that was tried, and leaves it out.
    """
    if device.type != "cuda":
        return
    try:
        torch.cuda.synchronize(device)
    except Exception:
        traceback.print_exc()
        print("the GPU cannot be used by this process any more, which ends here", file=sys.stderr, flush=True)
        os._exit(1)
