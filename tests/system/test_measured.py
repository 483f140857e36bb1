"""What is measured, of every head: by every implementation that can, and the planned memory of a step."""

import pytest
import torch

from harness.benchmarks import plan_memory
from harness.benchmarks.comparisons import Comparison, timed
from harness.benchmarks.implementations import IMPLEMENTATIONS
from harness.benchmarks.measure import BLOCKS_GIVEN_BACK, in_new_process
from harness.benchmarks.settings import ALL_HEADS, SETTINGS
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.training.step_memory import plan_step

WAYS = [("fp32", "default"), ("bf16", "default")]
ON_A_GPU = ("liger", "cce", "ours-chunked", "ours-stored")  # on a CPU one form trains: there is no choice


@pytest.mark.parametrize("kind", ["head", "step", "eval"])
def test_every_head_is_measured_by_every_implementation_that_can(kind):
    impls = tuple(name for name in IMPLEMENTATIONS if name != "compiled")
    what = {"kind": kind, "setting": SETTINGS["tiny"], "heads": ALL_HEADS, "impls": impls, "ways": WAYS}
    found = timed(Comparison(**what, device=torch.device("cpu"), rounds=2))
    counts = {each.cell: len(each.values) for each in found.cells}
    assert len(counts) == len(ALL_HEADS) * (len(IMPLEMENTATIONS) - 1) * len(WAYS)
    for cell, count in counts.items():
        missing = cell.impl in ON_A_GPU or (cell.impl == "torch" and cell.head in ("mfs", "sigsoftmax"))
        if cell.impl != "torch" or hasattr(torch.nn.functional, "linear_cross_entropy"):
            assert count == (0 if missing else 2), cell
    assert [(rate.precision, rate.route, len(rate.gflops)) for rate in found.products] == [(*way, 2) for way in WAYS]


def test_a_plan_within_a_quarter_of_a_measured_step():
    cpu = torch.device("cpu")
    variables = {**BLOCKS_GIVEN_BACK, "OMP_NUM_THREADS": "1"}
    measured = in_new_process(plan_memory.step_mib, "tiny", "softmax", cpu, variables=variables)
    body = ComponentSpec(name="gpt2", params={"d_model": 128, "num_layers": 4, "num_heads": 4})
    train = TrainSpec(optimizer="adamw", lr=0.1, epochs=1, batch_size=4, seq_len=200, clip=1.0)
    memory = plan_step(body, ComponentSpec(name="softmax"), train, vocab_size=5000, device=cpu)
    assert memory.total / 2**20 == pytest.approx(measured, rel=0.25)
