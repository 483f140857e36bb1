"""Numbers that are computed from one Measurement, as ratios of medians, and the project's targets for them.

Different measurements are never combined. No test asserts a target.
"""

import math
import statistics
from collections.abc import Callable, Iterable
from typing import NamedTuple

from harness.benchmarks.implementations import TARGET_ONLY
from harness.benchmarks.record import OURS, Cell, Kind, Measurement, Way
from harness.benchmarks.settings import SETTINGS, component, mixtures

BAND = 1.05  # two times with a smaller ratio count as equal
FLOAT_BYTES, MIB = 4, 2**20
LEAST, MOST = "at least", "at most"
Figure = Callable[[Measurement], float]  # nan where it was not measured


def quotient(above: float, below: float) -> float:
    """above / below; nan if one of them was not measured."""
    return above / below if below else math.nan


def linearity(measured: Measurement, impl: str, way: Way) -> float:
    """The time of MoS-15 divided by 15 times the time of the softmax. 1: no cost besides its arithmetic."""
    return quotient(measured.best("mos15", impl, *way), measured.best("softmax", impl, *way)) / 15


def product_fraction(measured: Measurement, head: str, way: Way) -> float:
    """The rate of operations of a whole evaluation, as a fraction of the rate of the chunk's products alone."""
    return measured.gflop(head) / measured.best(head, OURS, *way) * 1e3 / measured.rate(way)


def alone_fraction(measured: Measurement, head: str, way: Way) -> float:
    """The time of the matrix products of our step, computed alone, as a fraction of the time of the step."""
    return quotient(measured.alone().get(Cell(head, OURS, *way), math.nan), measured.best(head, OURS, *way))


def against_fastest(measured: Measurement) -> dict[Cell, tuple[float, str]]:
    """For each cell of ours, by the form that was chosen, its time divided by that of the fastest baseline of the same
    precision and route, and the name of this baseline. Our single forms ('ours-stored') are none.
    """
    return _against(measured, lambda impl: not impl.startswith(OURS))


def against_forms(measured: Measurement) -> dict[Cell, tuple[float, str]]:
    """As against_fastest, for the fastest of our single forms."""
    return _against(measured, lambda impl: impl.startswith(f"{OURS}-"))


def _against(measured: Measurement, rivals: Callable[[str], bool]) -> dict[Cell, tuple[float, str]]:
    medians, found = measured.medians(), {}
    for cell, took in medians.items():
        same = {other.impl: value for other, value in medians.items() if other == cell._replace(impl=other.impl)}
        others = {impl: value for impl, value in same.items() if rivals(impl)}
        if cell.impl == OURS and others:
            fastest = min(others, key=others.__getitem__)
            found[cell] = (took / others[fastest], fastest)
    return found


def over_softmax(measured: Measurement, impl: str, way: Way) -> dict[str, float]:
    """For each head its time divided by the time of the poster's softmax, for one implementation and way."""
    took = {cell.head: value for cell, value in measured.medians().items() if cell[1:] == (impl, *way)}
    softmax = took.pop("poster-softmax", None)
    return {head: value / softmax for head, value in took.items()} if softmax else {}


def memory_slope(measured: Measurement, impl: str, way: Way) -> float:
    """The growth of memory with K, in units of N d floats per component; nan for fewer than two mixtures."""
    points = {
        mixtures(cell.head): value
        for cell, value in measured.medians().items()
        if component(cell.head)[0] == "mos" and cell[1:] == (impl, *way)
    }
    if len(points) < 2:
        return math.nan
    mib_a_component = statistics.linear_regression(*zip(*points.items(), strict=True)).slope
    return mib_a_component * MIB / (measured.tokens * measured.width * FLOAT_BYTES)


class Target(NamedTuple):
    """A bound on one number, for measurements of one kind. None: any value."""

    kind: Kind
    setting: str
    tokens: int | None
    text: str
    bound: str
    value: float
    figure: Figure
    device_type: str = "cpu"
    graph: bool | None = None
    backbone: str = "transformer_encoder"

    def applies(self, measured: Measurement) -> bool:
        fields = ("kind", "setting", "tokens", "device_type", "graph", "backbone")
        return all(getattr(self, name) in (None, getattr(measured, name)) for name in fields)

    def met(self, measured: float) -> bool:
        return measured >= self.value if self.bound == LEAST else measured <= self.value


def outcomes(measured: Measurement) -> list[tuple[Target, float]]:
    """The targets for a measurement, each with the measured number."""
    found = [(target, target.figure(measured)) for target in TARGETS if target.applies(measured)]
    return [(target, value) for target, value in found if not math.isnan(value)]


def _best(of: Callable[[Iterable[float]], float], values: Iterable[float]) -> float:
    return of((value for value in values if not math.isnan(value)), default=math.nan)


def _float32(m: Measurement) -> list[Way]:
    return [way for way in m.ways if way[0] == "fp32"]


def _published_over_ours(head: str, precision: str = "fp32", route: str | None = None) -> Figure:
    return lambda m: quotient(m.base(head), m.best(head, OURS, precision, route))


def _over_published_softmax(head: str, precision: str) -> Figure:
    return lambda m: quotient(m.best(head, OURS, precision), m.base("softmax"))


def _milliseconds(head: str, precision: str) -> Figure:
    return lambda m: m.best(head, OURS, precision)


def _alone(head: str) -> Figure:
    return lambda m: _best(min, (alone_fraction(m, head, way) for way in _float32(m)))


def _target_only_over_ours(m: Measurement) -> float:
    ours = {way: m.best("softmax", OURS, *way) for way in _float32(m)}
    return _best(min, (quotient(m.best("softmax", TARGET_ONLY, *way), took) for way, took in ours.items()))


def _over_own_softmax(m: Measurement) -> float:
    return _best(max, (quotient(m.best("mos15", OURS, *way), m.best("softmax", OURS, *way)) for way in m.ways))


def _worst(of: Callable[[Measurement], dict[Cell, tuple[float, str]]]) -> Figure:
    return lambda m: _best(max, (ratio for ratio, _ in of(m).values()))


def _fastest_route(of: Callable[[Measurement, str, Way], float], named: str) -> Figure:
    """A number for our fastest float32 route of MoS-15."""

    def figure(m: Measurement) -> float:
        took = {way: m.best("mos15", OURS, *way) for way in _float32(m)}
        fastest = min((way for way in took if not math.isnan(took[way])), key=took.__getitem__, default=None)
        return math.nan if fastest is None else of(m, named, fastest)

    return figure


_HEAD, _STEP, _GRAPH = ("head", "ptb", 700), ("step", "ptb", 700), {"device_type": "cuda", "graph": True}
TARGETS = (
    Target(*_HEAD, "MoS-10, published / ours, both on torch's route", LEAST, 1.8,
           _published_over_ours("mos10", route="default")),
    Target(*_HEAD, "MoS-10, published / ours by the best fp32 route", LEAST, 3.2, _published_over_ours("mos10")),
    Target(*_HEAD, "MoS-10, published / ours with bf16 products", LEAST, 5.2, _published_over_ours("mos10", "bf16")),
    Target(*_HEAD, "Softmax, linear + cross_entropy / ours, worse route", LEAST, 1.0, _target_only_over_ours),
    Target(*_HEAD, "MoS-15 / (15 x Softmax), ours, best fp32 route", MOST, 1.05, _fastest_route(linearity, OURS)),
    Target(*_HEAD, "MoS-15, fraction of product rate, best fp32 route", LEAST, 0.78,
           _fastest_route(product_fraction, "mos15")),
    *(
        Target("head", setting, None, f"ours / fastest {named} of same products, worst cell", MOST, BAND, _worst(of),
               device_type)
        for device_type in ("cpu", "cuda")
        for setting in SETTINGS
        for named, of in (("baseline", against_fastest), ("form of ours", against_forms))
    ),
    Target("memory", "ptb", 700, "MoS-15, published / ours", LEAST, 28, _published_over_ours("mos15")),
    Target("memory", "wt2", 700, "MoS-15, published / ours", LEAST, 35, _published_over_ours("mos15")),
    Target(*_STEP, "MoS-15 ours / Softmax published, fp32", MOST, 4.2, _over_published_softmax("mos15", "fp32")),
    Target(*_STEP, "MoS-5 ours, bf16 products / Softmax published", MOST, 1.0, _over_published_softmax("mos5", "bf16")),
    *(
        Target(*_STEP, f"{shown}, {name}, products alone / ours, worse fp32 route", LEAST, 0.8, _alone(head),
               backbone=backbone)
        for shown, backbone in (("Transformer", "transformer_encoder"), ("LSTM", "lstm"))
        for name, head in (("Softmax", "softmax"), ("MoS-5", "mos5"))
    ),
    Target("eval", "ptb", 700, "MoS-10, published / ours", LEAST, 3.0, _published_over_ours("mos10")),
    Target("head", "ptb", None, "MoS-15, bf16, ms", MOST, 0.6, _milliseconds("mos15", "bf16"), **_GRAPH),
    Target("head", "ptb", None, "MoS-15, tf32, ms", MOST, 1.0, _milliseconds("mos15", "tf32"), **_GRAPH),
    Target("head", "gpt2-small", 4096, "MFS (K=3, P=4), bf16, ms", MOST, 6.6, _milliseconds("mfs", "bf16"), **_GRAPH),
    *(
        Target("step", "ptb", None, "MoS-15 / Softmax, ours, worst precision", MOST, value, _over_own_softmax,
               "cuda", graph)
        for graph, value in ((False, 1.25), (True, 1.8))
    ),
    Target("memory", "gpt2-small", 16_384, "MFS (K=3, P=4), published / ours", LEAST, 25,
           _published_over_ours("mfs"), "cuda"),
)  # fmt: skip
