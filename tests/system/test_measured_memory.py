"""The planned memory of a training step against a measured one, in a process of its own."""

import pytest
import torch

from harness.benchmarks import plan_memory
from harness.benchmarks.measure import BLOCKS_GIVEN_BACK, in_new_process
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.training.step_memory import plan_step


def test_a_plan_within_a_quarter_of_a_measured_step():
    cpu = torch.device("cpu")
    variables = {**BLOCKS_GIVEN_BACK, "OMP_NUM_THREADS": "1"}
    measured = in_new_process(plan_memory.step_mib, "tiny", "softmax", cpu, variables=variables)
    body = ComponentSpec(name="gpt2", params={"d_model": 128, "num_layers": 4, "num_heads": 4})
    train = TrainSpec(optimizer="adamw", lr=0.1, epochs=1, batch_size=4, seq_len=200, clip=1.0)
    memory = plan_step(body, ComponentSpec(name="softmax"), train, vocab_size=5000, device=cpu)
    assert memory.total / 2**20 == pytest.approx(measured, rel=0.25)
