"""Every head is measured by every implementation that can. No speed is asserted."""

import pytest
import torch

from harness.benchmarks.comparisons import Comparison, timed
from harness.benchmarks.implementations import IMPLEMENTATIONS
from harness.benchmarks.settings import ALL_HEADS, SETTINGS

WAYS = [("fp32", "default"), ("bf16", "default")]


@pytest.mark.parametrize("kind", ["head", "step", "eval"])
def test_every_head_is_measured_by_every_implementation_that_can(kind):
    impls = tuple(name for name in IMPLEMENTATIONS if name != "compiled")
    what = {"kind": kind, "setting": SETTINGS["tiny"], "heads": ALL_HEADS, "impls": impls, "ways": WAYS}
    found = timed(Comparison(**what, device=torch.device("cpu"), rounds=2))
    counts = {each.cell: len(each.values) for each in found.cells}
    assert len(counts) == len(ALL_HEADS) * (len(IMPLEMENTATIONS) - 1) * len(WAYS)
    for cell, count in counts.items():
        missing = cell.impl in ("liger", "cce") or (cell.impl == "torch" and cell.head in ("mfs", "sigsoftmax"))
        if cell.impl != "torch" or hasattr(torch.nn.functional, "linear_cross_entropy"):
            assert count == (0 if missing else 2), cell
    assert [(rate.precision, rate.route, len(rate.gflops)) for rate in found.products] == [(*way, 2) for way in WAYS]
