"""Can this head say it? Heads fitted to distributions that a softmax cannot have, without a language model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.experiments.convex_optimum import lowest_kl
from harness.experiments.fitting import Frequency, best_kl
from harness.experiments.problems import PROBLEMS, Problem
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
    """The row of a head with some parameters."""
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


def _over(seeds: Sequence[int], value: Callable[[Problem, int], float]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(value(make(seed), seed) for seed in seeds) for name, make in PROBLEMS.items()}
