"""Can this head say it? Heads fitted to distributions that a softmax cannot have, without a language model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize
from torch import Tensor

from harness.experiments.fitting import Frequency, best_kl
from harness.experiments.problems import PROBLEMS, Problem, entropy
from harness.plan.specs import ComponentSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A head of the experiment.

    Args:
        words: for heads that read token counts: the words of the problems are the most frequent ones or the rarest
            ones. None: the most frequent ones, and the name does not say so.
    """

    head: ComponentSpec
    words: Frequency | None = None

    @property
    def name(self) -> str:
        """'mos(num_mixtures=2)', 'mixtape, the words are rare'."""
        return str(self.head) if self.words is None else f"{self.head}, the words are {self.words}"


def row(head: str, words: Frequency | None = None, **params: Any) -> Row:
    return Row(head=ComponentSpec(name=head, params=params), words=words)


ROWS = (
    row("softmax"),
    row("softmax", softcap=30.0),
    row("sigsoftmax"),
    row("gss"),
    row("plif", num_pieces=100),
    row("moc", num_mixtures=4),
    row("mos", num_mixtures=2),
    row("mos", num_mixtures=2, activation="none"),
    row("mos", num_mixtures=4, activation="none"),
    row("doc", components={"top": 2, "second": 2}),
    row("mfs", num_mixtures=1, num_input_layers=1, window=0),
    row("mfs", num_input_layers=1, window=0),
    row("mfs"),
    row("mixtape", "frequent"),
    row("mixtape", "rare"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What was reached: for each problem the lowest KL in nats, one for each seed."""

    name: str
    kl: dict[str, tuple[float, ...]]


def optimum(seeds: Sequence[int], *, bound: float | None = None) -> Reached:
    """What one softmax can reach at best, by convex optimisation; with a bound, of states within [-bound, bound]."""
    name = "one softmax, convex optimum" + ("" if bound is None else f", states in [-{bound:g}, {bound:g}]")
    return Reached(name=name, kl=_over(seeds, lambda each, _: lowest_kl(each.weight, each.target, bound=bound)))


def reached(row: Row, seeds: Sequence[int]) -> Reached:
    """What a head reaches. Raises as best_kl does."""
    words = row.words or "frequent"
    return Reached(name=row.name, kl=_over(seeds, lambda each, seed: best_kl(row.head, each, seed, words=words)))


def lowest_kl(weight_VD: Tensor, target_NV: Tensor, *, bound: float | None = None) -> float:
    """min over h of KL(t || softmax(W h)) in nats, a mean over contexts.

    f(h) = logsumexp(W h) - t^T W h is convex; its gradient is W^T (p - t) and its Hessian W^T (diag(p) - p p^T) W.
    Where the minimum is approached at infinity only, the value is within 1e-9 of the limit.

    Args:
        weight_VD, target_NV: W and the targets, float64.
        bound: |h_i| <= bound, for states that a tanh limits. None: h is free.
    """
    W = weight_VD.numpy()
    return float(np.mean([_minimum(W, t, bound) for t in target_NV.numpy()])) - entropy(target_NV)


def _minimum(W: np.ndarray, t: np.ndarray, bound: float | None) -> float:
    start = np.zeros(W.shape[1])
    if bound is not None:
        limits = optimize.Bounds(-bound, bound)
        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000, "maxfun": 10**6}
        return optimize.minimize(_value, start, (W, t), jac=True, method="L-BFGS-B", bounds=limits, options=options).fun
    return optimize.minimize(
        _value, start, (W, t), jac=True, hess=_hessian, method="trust-exact", options={"gtol": 1e-11, "maxiter": 10_000}
    ).fun


def _value(h: np.ndarray, W: np.ndarray, t: np.ndarray) -> tuple[float, np.ndarray]:
    z = W @ h
    log_sum = np.logaddexp.reduce(z)
    return log_sum - t @ z, W.T @ (np.exp(z - log_sum) - t)


def _hessian(h: np.ndarray, W: np.ndarray, t: np.ndarray) -> np.ndarray:
    z = W @ h
    p = np.exp(z - np.logaddexp.reduce(z))
    mean = W.T @ p
    return (W * p[:, None]).T @ W - np.outer(mean, mean)


def _over(seeds: Sequence[int], value: Callable[[Problem, int], float]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(value(make(seed), seed) for seed in seeds) for name, make in PROBLEMS.items()}
