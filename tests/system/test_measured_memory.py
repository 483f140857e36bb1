"""The planned memory of a training step against a measured one, in a process of its own."""

import os
import subprocess
import sys

import pytest
import torch

from harness.plan.specs import ComponentSpec, TrainSpec
from harness.training.step_memory import plan_step


def test_a_plan_within_a_quarter_of_a_measured_step():
    variables = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "harness.benchmarks.plan_memory", "tiny", "softmax", "cpu"]
    measured = float(subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout)
    body = ComponentSpec(name="gpt2", params={"d_model": 128, "num_layers": 4, "num_heads": 4})
    train = TrainSpec(optimizer="adamw", lr=0.1, epochs=1, batch_size=4, seq_len=200, clip=1.0)
    softmax, cpu = ComponentSpec(name="softmax"), torch.device("cpu")
    memory = plan_step(body, softmax, train, vocab_size=5000, device=cpu)
    assert memory.total / 2**20 == pytest.approx(measured, rel=0.25)
