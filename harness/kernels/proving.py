"""Prove the evaluation of mixtures on a device: compare small cases with the reference in float64 on the CPU.

The inputs are numbers of few bits: facets x in -1, -1/2 .. 1 and words w in -1/2, 0, 1/2. So logits are multiples of
1/4 below 64, which float32, tf32 and bfloat16 represent exactly. (In training the kernels scale facets by 1 / ln 2, so
there the facets are ln 2 x. For a soft cap they scale them by 2 / c, so there the facets are c / 2 x, divided by a
power of 2 to keep the logits small.) Therefore the loss must be correct up to the rounding of float32 sums in every
precision of the products. Only gradients have larger errors: they are products of exponentials and scaled facets, which
are rounded.

In training with bfloat16 the bias is rounded, too: it is multiplied by a rounded scale. Such cases have twice the
bound. The maps themselves are computed in float32.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.distributions import Mixture, log_prior
from harness.kernels import Bend, SoftCap, devices, reference_only
from harness.kernels.devices import Kernels
from harness.kernels.logit_maps import LeanMap, identity
from harness.kernels.products import Precision, Products, using

LN_2 = math.log(2)
# The bound on the relative error of float32 sums: some hundred roundings of 2^-24. For comparison: one missing word of
# 8,209 makes an error of 1e-4.
SUMS = 1e-5
# The relative error of a product's inputs. Tensor cores may truncate to tf32; bfloat16 is rounded to nearest.
ROUNDING: dict[Precision, float] = {"fp32": SUMS, "tf32": 2.0**-10, "bf16": 2.0**-8}
NLL = "a token's nll"
NAMES = ("the facets", "the prior", "the output matrix", "the bias")


@dataclass(frozen=True, slots=True)
class Case:
    """One case: N tokens, V words, width E, and the form of the mixture."""

    name: str
    N: int
    V: int
    E: int
    partitions: tuple[int, ...] = (1,)
    logit_map: LeanMap | None = None
    bias: bool = False
    log_epsilon: float | None = None

    def rounded(self, precision: Precision) -> bool:
        """Whether the logits themselves are rounded."""
        return precision == "bf16" and self.bias

    @property
    def unit(self) -> float:
        """What the numbers of few bits are multiplied by to make facets, so that the kernels' scale leaves few bits."""
        if not isinstance(self.logit_map, SoftCap):
            return LN_2
        return math.frexp(self.logit_map.c)[0]  # c / 2, divided by a power of 2: from 1/2 to 1


CASES = (
    Case("one component", N=7, V=37, E=5),
    Case("three components", N=43, V=401, E=33, partitions=(1, 1, 1)),
    Case("three components with bias", N=13, V=129, E=64, partitions=(1, 1, 1), bias=True),
    Case("partitions 4, 1, 1", N=9, V=53, E=21, partitions=(4, 1, 1)),
    Case("partitions 1, 3 with an epsilon", N=5, V=46, E=8, partitions=(1, 3), log_epsilon=0.01),
    # more than one step of the kernels, an incomplete step, several shares of the vocabulary
    Case("many words", N=3, V=8_209, E=70),
    Case("a bend", N=11, V=41, E=9, partitions=(1, 1), logit_map=Bend(c=0.0, k=2.0)),
    Case(
        "a bend with partitions and bias", N=11, V=43, E=9, partitions=(2, 1), logit_map=Bend(c=0.5, k=1.5), bias=True
    ),
    Case("a tight soft cap", N=11, V=41, E=9, partitions=(1, 1), logit_map=SoftCap(c=3.0)),
    Case("the soft cap of Gemma 2", N=13, V=401, E=64, partitions=(1, 1), logit_map=SoftCap(c=30.0)),
    Case("a soft cap with partitions", N=9, V=53, E=21, partitions=(2, 1), logit_map=SoftCap(c=50.0)),
)


def fault_of_training(device: torch.device, kernels: Kernels) -> str:
    """Check losses and gradients that use `kernels.combine_rows_`. Return what is wrong, or ''."""
    return _first_fault(device, kernels._replace(log_sum_exp=None), _losses_and_gradients, CASES)


def fault_of_evaluation(device: torch.device, kernels: Kernels) -> str:
    """Check the nll of tokens by `kernels.log_sum_exp`. Return what is wrong, or ''."""
    return _first_fault(device, kernels, _nll, [case for case in CASES if case.logit_map is None])


Found = Iterator[tuple[str, Tensor]]  # (name of a quantity, its value)
Evaluate = Callable[[Case, torch.device, torch.dtype], Found]


def _first_fault(device: torch.device, kernels: Kernels, evaluate: Evaluate, cases) -> str:
    for precision in ROUNDING:
        products = Products(precision=precision)  # tf32 is float32 on the CPU
        for case in cases:
            with reference_only():
                exact = list(evaluate(case, torch.device("cpu"), torch.float64))
            with ExitStack() as within:
                for each in (devices.use_kernels(kernels), using(products), products.switched(device)):
                    within.enter_context(each)
                found = list(evaluate(case, device, torch.float32))
            for (what, value), (_, expected) in zip(found, exact, strict=True):
                error, bound = _error(value, expected), _bound(what, case, precision)
                if not error <= bound:  # written so that NaN is an error, too
                    return f"{what} is wrong by {error:.1e} ({precision}, {case.name}; at most {bound:.1e} is rounding)"
    return ""


def _bound(what: str, case: Case, precision: Precision) -> float:
    exact = what in ("the loss", "the gradient of the prior") and not case.rounded(precision)
    if exact or what == NLL:
        return SUMS
    return ROUNDING[precision] * (2 if case.rounded(precision) else 1)


def _error(value: Tensor, expected: Tensor) -> float:
    """The largest error relative to the largest entry."""
    return ((value.detach().cpu().double() - expected).abs().max() / expected.abs().max()).item()


def _nll(case: Case, device: torch.device, dtype: torch.dtype) -> Found:
    mixture, targets_BT, _ = _given(case, device, dtype)
    with torch.no_grad():
        yield NLL, mixture(*_tensors(case, device, dtype, unit=1.0)).nll(targets_BT)


def _losses_and_gradients(case: Case, device: torch.device, dtype: torch.dtype) -> Found:
    """Yield losses and gradients: of the weighted mean over tokens, and of a weighted sum of single tokens' losses."""
    mixture, targets_BT, weight_BT = _given(case, device, dtype)
    for loss_of in (
        lambda made: made.mean_nll(targets_BT, weight_BT.clamp(min=0)),
        lambda made: (made.nll(targets_BT) * weight_BT).sum(),
    ):
        inputs = _tensors(case, device, dtype, unit=case.unit)
        with torch.enable_grad():
            wanted = {name: x.requires_grad_() for name, x in zip(NAMES, inputs, strict=True) if x is not None}
            loss = loss_of(mixture(*inputs))
            gradients = torch.autograd.grad(loss, list(wanted.values()))
        yield "the loss", loss
        yield from ((f"the gradient of {name}", gradient) for name, gradient in zip(wanted, gradients, strict=True))


def _given(case: Case, device: torch.device, dtype: torch.dtype):
    """Return a function from tensors to a Mixture; targets, of which the first two are the last and the first word;
    weights of both signs, some of them 0.
    """
    generator = torch.Generator().manual_seed(case.N)
    targets_BT = torch.randint(case.V, (1, case.N), generator=generator)
    targets_BT[0, :2] = torch.tensor([case.V - 1, 0])
    weight_BT = torch.randint(-2, 5, (1, case.N), generator=generator).to(device, dtype)

    def mixture(facets, scores, weight, bias) -> Mixture:
        return Mixture(
            facets,
            None if scores is None else log_prior(scores),
            weight,
            bias,
            partitions=case.partitions,
            logit_map=identity if case.logit_map is None else case.logit_map,
            log_epsilon=case.log_epsilon,
        )

    return mixture, targets_BT.to(device), weight_BT


def _tensors(case: Case, device: torch.device, dtype: torch.dtype, *, unit: float) -> tuple[Tensor | None, ...]:
    """Facets (1, N, F, E), scores (1, N, K) or None, words (V, E), bias (V,) or None."""
    generator = torch.Generator().manual_seed(case.V)

    def halves(*shape: int, largest: int = 2) -> Tensor:
        return torch.randint(-largest, largest + 1, shape, generator=generator).double() / 2

    K, F = len(case.partitions), sum(case.partitions)
    facets, weight = halves(1, case.N, F, case.E), halves(case.V, case.E, largest=1)
    # a word with a high logit for the second token
    weight[-1] = facets[0, 1, (case.V - 1) % case.partitions[0]].sign() / 2
    scores = halves(1, case.N, K) if K > 1 else None
    bias = halves(case.V) if case.bias else None
    return tuple(None if x is None else x.to(device, dtype) for x in (unit * facets, scores, weight, bias))
