"""Targets for the measurements. No test asserts a target."""

from collections.abc import Callable
from typing import NamedTuple

from harness.benchmarks.cells import OURS, PUBLISHED, TARGET_ONLY
from harness.benchmarks.figures import (
    BAND,
    against_fastest,
    base,
    best,
    linearity,
    product_fraction,
    quotient,
    ways,
    worst,
    worst_alone_fraction,
)
from harness.benchmarks.measurement import Kind, Measurement

LEAST, MOST = "at least", "at most"
Figure = Callable[[Measurement], float | None]


class Where(NamedTuple):
    """A condition on measurements, for which targets are given. None: any value."""

    kind: Kind
    setting: str
    tokens: int | None = None
    device_type: str = "cpu"
    graph: bool | None = None
    backbone: str | None = "transformer_encoder"

    def __contains__(self, measured: Measurement) -> bool:
        return all(wanted in (None, getattr(measured, name)) for name, wanted in self._asdict().items())


class Target(NamedTuple):
    """A bound on one number."""

    text: str
    bound: str
    value: float
    figure: Figure

    def met(self, measured: float) -> bool:
        """Return whether a number meets the bound."""
        return measured >= self.value if self.bound == LEAST else measured <= self.value


def outcomes(measured: Measurement) -> list[tuple[Target, float]]:
    """Return the targets for a measurement, each with the measured number."""
    found = [
        (target, target.figure(measured)) for where, some in TARGETS.items() if measured in where for target in some
    ]
    return [(target, value) for target, value in found if value is not None]


def _published_over_ours(head: str, precision: str) -> Figure:
    return lambda m: quotient(base(m, head), best(m, head, OURS, precision))


def _same_way(head: str, impl: str = PUBLISHED) -> Figure:
    """Return the smallest ratio baseline / ours over the float32 routes, both with the same route."""

    def figure(m: Measurement) -> float | None:
        medians = {
            (cell.impl, cell.route): v
            for cell, v in m.medians().items()
            if (cell.head, cell.precision) == (head, "fp32")
        }
        ratios = [quotient(medians.get((impl, route)), medians.get((OURS, route))) for _, route in medians]
        return min((ratio for ratio in ratios if ratio is not None), default=None)

    return figure


def _default_route(head: str) -> Figure:
    def figure(m: Measurement) -> float | None:
        took = {(c.impl, c.precision, c.route): v for c, v in m.medians().items() if c.head == head}
        return quotient(took.get((PUBLISHED, "fp32", "default")), took.get((OURS, "fp32", "default")))

    return figure


def _over_published_softmax(head: str, precision: str) -> Figure:
    return lambda m: quotient(best(m, head, OURS, precision), base(m, "softmax"))


def _milliseconds(head: str, precision: str) -> Figure:
    return lambda m: best(m, head, OURS, precision)


def _over_own_softmax(m: Measurement) -> float | None:
    found = (linearity(m, OURS, way) for way in ways(m))
    return worst(None if each is None else 15 * each for each in found)


def _against_fastest(m: Measurement) -> float | None:
    return worst(ratio for ratio, _ in against_fastest(m).values())


def _alone(head: str) -> Figure:
    return lambda m: worst_alone_fraction(m, head)


def _products_of_a_step(backbone: str) -> list[Target]:
    return [
        Target(f"{backbone}, {name}, products alone / ours, worse fp32 route", LEAST, 0.8, _alone(head))
        for name, head in (("Softmax", "softmax"), ("MoS-5", "mos5"))
    ]


def _float32(of: Callable[..., float | None], *given: str) -> Figure:
    """Return a number for our fastest float32 route of the largest mixture."""

    def figure(m: Measurement) -> float | None:
        took = {c.route: v for c, v in m.medians().items() if (c.head, c.impl, c.precision) == ("mos15", OURS, "fp32")}
        return of(m, *given, ("fp32", min(took, key=took.__getitem__))) if took else None

    return figure


TARGETS = {
    Where("head", "ptb", 700): [
        Target("MoS-10, published / ours, both on torch's route", LEAST, 1.8, _default_route("mos10")),
        Target("MoS-10, published / ours by the best fp32 route", LEAST, 3.2, _published_over_ours("mos10", "fp32")),
        Target("MoS-10, published / ours with bf16 products", LEAST, 5.2, _published_over_ours("mos10", "bf16")),
        Target("Softmax, linear + cross_entropy / ours, worse route", LEAST, 1.0, _same_way("softmax", TARGET_ONLY)),
        Target("MoS-15 / (15 x Softmax), ours, best fp32 route", MOST, 1.05, _float32(linearity, OURS)),
        Target("MoS-15, fraction of product rate, best fp32 route", LEAST, 0.78, _float32(product_fraction, "mos15")),
        Target("ours / fastest baseline of same products, worst cell", MOST, BAND, _against_fastest),
    ],
    Where("memory", "ptb", 700): [Target("MoS-15, published / ours", LEAST, 28, _published_over_ours("mos15", "fp32"))],
    Where("memory", "wt2", 700): [Target("MoS-15, published / ours", LEAST, 35, _published_over_ours("mos15", "fp32"))],
    Where("step", "ptb", 700): [
        Target("MoS-15 ours / Softmax published, fp32", MOST, 4.2, _over_published_softmax("mos15", "fp32")),
        Target("MoS-5 ours, bf16 products / Softmax published", MOST, 1.0, _over_published_softmax("mos5", "bf16")),
        *_products_of_a_step("Transformer"),
    ],
    Where("step", "ptb", 700, backbone="lstm"): _products_of_a_step("LSTM"),
    Where("eval", "ptb", 700): [Target("MoS-10, published / ours", LEAST, 3.0, _published_over_ours("mos10", "fp32"))],
    Where("head", "ptb", None, "cuda", True): [
        Target("MoS-15, bf16, ms", MOST, 0.6, _milliseconds("mos15", "bf16")),
        Target("MoS-15, tf32, ms", MOST, 1.0, _milliseconds("mos15", "tf32")),
    ],
    Where("head", "gpt2-small", 4096, "cuda", True): [
        Target("MFS (K=3, P=4), bf16, ms", MOST, 6.6, _milliseconds("mfs", "bf16")),
    ],
    Where("step", "ptb", None, "cuda", False): [
        Target("MoS-15 / Softmax, ours, worst precision", MOST, 1.25, _over_own_softmax),
    ],
    Where("step", "ptb", None, "cuda", True): [
        Target("MoS-15 / Softmax, ours, worst precision", MOST, 1.8, _over_own_softmax),
    ],
    Where("memory", "gpt2-small", 16_384, "cuda"): [
        Target("MFS (K=3, P=4), published / ours", LEAST, 25, _published_over_ours("mfs", "fp32")),
    ],
}
