"""Numbers that are computed from one Measurement, as ratios of medians. Different measurements are never combined."""

import statistics
from collections.abc import Iterable

from harness.benchmarks.cells import OURS, PUBLISHED, Cell
from harness.benchmarks.measurement import Measurement
from harness.benchmarks.settings import component, mixtures

BAND = 1.05  # two times with a smaller ratio count as equal
Way = tuple[str, str]
BASE_WAY: Way = ("fp32", "default")
FLOAT_BYTES, MIB = 4, 2**20


def ways(measured: Measurement) -> list[Way]:
    """Return the pairs (precision, route), in the order of the cells."""
    return list(dict.fromkeys((each.precision, each.route) for each in measured.cells))


def heads(measured: Measurement) -> list[str]:
    """Return the heads, in the order of the cells."""
    return list(dict.fromkeys(each.head for each in measured.cells))


def impls(measured: Measurement) -> list[str]:
    """Return the implementations, in the order of the cells."""
    return list(dict.fromkeys(each.impl for each in measured.cells))


def best(measured: Measurement, head: str, impl: str, precision: str) -> float | None:
    """Return the smallest median over the routes of a precision."""
    found = [
        value
        for cell, value in measured.medians().items()
        if (cell.head, cell.impl, cell.precision) == (head, impl, precision)
    ]
    return min(found, default=None)


def base(measured: Measurement, head: str) -> float | None:
    """Return the median of the published structure in float32 by torch's default route; None if it was not measured."""
    return measured.medians().get(Cell(head, PUBLISHED, *BASE_WAY))


def quotient(above: float | None, below: float | None) -> float | None:
    """Return above / below; None if one of them was not measured."""
    return above / below if above is not None and below else None


def linearity(measured: Measurement, impl: str, way: Way, head: str = "mos15") -> float | None:
    """Return the time of a mixture of K divided by K times the time of the softmax. 1: no cost besides its
    arithmetic.
    """
    medians = measured.medians()
    ratio = quotient(medians.get(Cell(head, impl, *way)), medians.get(Cell("softmax", impl, *way)))
    return None if ratio is None else ratio / mixtures(head)


def product_fraction(measured: Measurement, head: str, way: Way) -> float | None:
    """Return the rate of operations of a whole evaluation, as a fraction of the rate of the chunk's products alone."""
    took, rate = measured.medians().get(Cell(head, OURS, *way)), measured.rate(*way)
    return None if took is None or rate is None else measured.gflop(head) / took * 1e3 / rate


def alone_fraction(measured: Measurement, head: str, way: Way) -> float | None:
    """Return the time of the matrix products of our step, computed alone, as a fraction of the time of the step."""
    cell = Cell(head, OURS, *way)
    return quotient(measured.alone(cell), measured.medians().get(cell))


def worst_alone_fraction(measured: Measurement, head: str) -> float | None:
    """Return the smallest `alone_fraction` of the routes of float32 products."""
    found = (alone_fraction(measured, head, way) for way in ways(measured) if way[0] == "fp32")
    return min((each for each in found if each is not None), default=None)


def against_fastest(measured: Measurement) -> dict[Cell, tuple[float, str]]:
    """Return for each of our cells its time divided by that of the fastest baseline, and the name of this baseline.

    Baselines are compared with the same precision and route.
    """
    medians, found = measured.medians(), {}
    for cell, took in medians.items():
        others = {
            other.impl: value
            for other, value in medians.items()
            if other.impl != OURS
            and (other.head, other.precision, other.route) == (cell.head, cell.precision, cell.route)
        }
        if cell.impl == OURS and others:
            fastest = min(others, key=others.__getitem__)
            found[cell] = (took / others[fastest], fastest)
    return found


def over_softmax(measured: Measurement, impl: str, way: Way) -> dict[str, float]:
    """Return for each head its time divided by the time of the poster's softmax, for one implementation and way."""
    took = {cell.head: value for cell, value in measured.medians().items() if (cell.impl, *_way(cell)) == (impl, *way)}
    softmax = took.pop("poster-softmax", None)
    return {head: value / softmax for head, value in took.items()} if softmax else {}


def _way(cell: Cell) -> Way:
    return cell.precision, cell.route


def memory_slope(measured: Measurement, impl: str, way: Way) -> float | None:
    """Return the growth of memory with K, in units of N d floats per component; None for fewer than two mixtures."""
    points = {
        mixtures(cell.head): value
        for cell, value in measured.medians().items()
        if component(cell.head)[0] == "mos" and (cell.impl, cell.precision, cell.route) == (impl, *way)
    }
    if len(points) < 2:
        return None
    mib_a_component = statistics.linear_regression(*zip(*points.items(), strict=True)).slope
    return mib_a_component * MIB / (measured.tokens * measured.width * FLOAT_BYTES)


def worst(values: Iterable[float | None]) -> float | None:
    """Return the largest value that was measured; None if there is none."""
    return max((value for value in values if value is not None), default=None)
