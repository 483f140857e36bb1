"""Measurements made by hand."""

import pytest

from harness.benchmarks.record import CellValues, Measurement, ProductRate


@pytest.fixture
def measured():
    """A function: {(head, impl, precision, route): values or a reason}, fields -> Measurement of 700 x 200 x 10,000."""

    def make(
        cells: dict[tuple, tuple[float, ...] | str], rates: dict[tuple, tuple] | None = None, **fields
    ) -> Measurement:
        made = []
        for (head, impl, precision, route), found in cells.items():
            given = {"lacking": found} if isinstance(found, str) else {"values": found}
            made.append(CellValues(head=head, impl=impl, precision=precision, route=route, **given))
        products = [ProductRate(precision=p, route=r, gflops=values) for (p, r), values in (rates or {}).items()]
        about = {"kind": "head", "setting": "ptb", "tokens": 700, "width": 200, "vocab": 10_000, "device": "A CPU (64)"}
        machine = {"threads": 1, "load_average": 0.25, "torch": "2.13.0", "commit": "abc"}
        run = {"started": "2026-11-21T00:00:00+00:00", "rounds": 3}
        return Measurement(**{**about, **machine, **run, **fields}, cells=tuple(made), products=tuple(products))

    return make
