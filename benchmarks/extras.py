"""`bench extras`: what a logit map, the z-loss and the statistics of tokens add to the plain lean evaluation.

Every round runs each pass once, on one thread, in float32 on the CPU, by this machine's route of products. Times are
processor time, which other processes disturb less than they do the time of the clock. A ratio is that of a pass to the
plain pass of the same round; the table shows medians.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from harness.benchmarks.measure import Report, interleaved, on_cpu, silent
from harness.benchmarks.record import Record, Rows, Values, about, sizes
from harness.benchmarks.settings import Setting, setting_of
from harness.benchmarks.tables import document, listed, medians
from harness.distributions import LOGIT_MAPS, Mixture, SoftCap, log_prior
from harness.kernels import products
from harness.kernels.products import Products, using
from harness.machine.environment import torch_threads

MIXTURES = (1, 3)
CAP, Z_LOSS = 30.0, 1e-4  # of Gemma 2 (2024) and of PaLM (2022)
MAPS = {"plain": LOGIT_MAPS["identity"], "soft cap": SoftCap(CAP), "sigsoftmax": LOGIT_MAPS["sigsoftmax"]}
TRAINING, EVALUATION = "loss and gradients", "nll of each token"
CPU = torch.device("cpu")


class Pass(Values):
    """One pass, and the milliseconds of processor time that it took in each round."""

    num_mixtures: int
    what: str
    extra: str
    milliseconds: tuple[float, ...]


class Extras(Record):
    """All passes of one measurement."""

    stem = "extras"
    kind: Literal["extras"] = "extras"
    route: str
    setting: str
    tokens: int
    vocab: int
    width: int
    passes: tuple[Pass, ...]

    def ratio(self, one: Pass) -> float:
        """The median over rounds of the time of a pass, divided by that of the plain pass of the round."""
        same = (each for each in self.passes if (each.num_mixtures, each.what) == (one.num_mixtures, one.what))
        plain = next(each for each in same if each.extra == "plain")
        return statistics.median(a / b for a, b in zip(one.milliseconds, plain.milliseconds, strict=True))

    def tables(self) -> list[Rows]:
        columns = {
            "K": lambda each: str(each.num_mixtures),
            "pass": lambda each: each.what,
            "with": lambda each: each.extra,
            "ms": lambda each: f"{statistics.median(each.milliseconds):.1f}",
            "times the plain pass": lambda each: f"{self.ratio(each):.2f}",
        }
        return [listed(self.passes, columns)]

    def markdown(self) -> str:
        sizes = f"{self.tokens} tokens, V = {self.vocab:,}, width {self.width}, float32, a soft cap of {CAP:g}"
        return document(
            "What logit maps, z-loss and statistics add to the evaluation of a mixture",
            f"Made by `harness bench extras --save`. {sizes}.",
            self,
            [],
            f"{medians(self)}, in processor time, {self.route} products; a ratio is taken within its round",
        )


def measure(kind: str, report: Report = silent, *, setting: str, rounds: int) -> list[Extras]:
    """Measure all passes at the sizes of a setting, after a round of warm-up."""
    chosen, machine, route = setting_of(setting, CPU), about(CPU), products.load_probe().route
    calls = {(k, *name): call for k in MIXTURES for name, call in passes(chosen, k).items()}
    with torch_threads(1), using(Products(route=route)), Products(route=route).switched(CPU):
        taken = interleaved(calls, rounds, CPU, report, measure=partial(on_cpu, clock=time.process_time))
    found = [
        Pass(num_mixtures=k, what=what, extra=extra, milliseconds=times) for (k, what, extra), times in taken.items()
    ]
    return [Extras(**machine, **sizes(chosen), route=route, rounds=rounds, passes=tuple(found))]


def passes(setting: Setting, num_mixtures: int) -> dict[tuple[str, str], Callable[[], Any]]:
    """(what is computed, what is added) -> a function that computes it. The plain pass comes first."""
    inputs, targets_BT = _inputs(setting, num_mixtures)

    def mixture(logit_map: Callable[[Tensor], Tensor]) -> Mixture:
        facets, scores, weight, bias = inputs
        return Mixture(facets, None if scores is None else log_prior(scores), weight, bias, logit_map=logit_map)

    def train(logit_map: Callable[[Tensor], Tensor], z_loss: float = 0.0) -> None:
        distribution = mixture(logit_map)
        distribution.z_loss = z_loss
        wanted = [tensor for tensor in inputs if tensor is not None]
        torch.autograd.grad(distribution.training_loss(targets_BT), wanted)

    @torch.no_grad()
    def evaluate(logit_map: Callable[[Tensor], Tensor]) -> None:
        mixture(logit_map).nll(targets_BT)

    plain = MAPS["plain"]
    return {
        **{(TRAINING, name): lambda phi=phi: train(phi) for name, phi in MAPS.items()},
        (TRAINING, "z-loss"): lambda: train(plain, Z_LOSS),
        **{(EVALUATION, name): lambda phi=phi: evaluate(phi) for name, phi in MAPS.items()},
        (EVALUATION, "statistics of each token"): lambda: mixture(plain).statistics(),
    }


def _inputs(setting: Setting, num_mixtures: int) -> tuple[tuple[Tensor | None, ...], Tensor]:
    """Facets (1, N, K, E), scores (1, N, K) or None, words (V, E), bias (V,), all of which take gradients; targets."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    N, E, V = setting.tokens, setting.width, setting.vocab
    scores = normal(1, N, num_mixtures) if num_mixtures > 1 else None
    inputs = normal(1, N, num_mixtures, E), scores, normal(V, E), normal(V)
    return inputs, torch.randint(V, (1, N), generator=generator)
