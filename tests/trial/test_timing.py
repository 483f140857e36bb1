"""Clocks and memory."""

import math
import subprocess
import sys

import pytest
import torch

from harness.trial.timing import WARMUP_BATCHES, Clock

CPU = torch.device("cpu")


def test_median_and_quartiles_leave_warm_up_out():
    clock = Clock(CPU)
    clock.milliseconds = [1e6] * WARMUP_BATCHES + [10.0, 20.0, 30.0]
    # quartiles of 10, 20, 30 at (n + 1) p: positions 1, 2, 3
    assert clock.summary("train") == {"train_ms_per_batch": 20.0, "train_ms_per_batch_iqr": 20.0}


@pytest.mark.parametrize("laps", [0, WARMUP_BATCHES, WARMUP_BATCHES + 1])
def test_too_few_batches_give_no_figure(laps):
    clock = Clock(CPU)
    clock.milliseconds = [1.0] * laps
    assert clock.summary("train") == {}


def test_a_lap_is_one_positive_duration():
    clock = Clock(CPU)
    with clock.lap():
        math.factorial(2000)
    assert len(clock.milliseconds) == 1
    assert clock.milliseconds[0] > 0


def test_peak_memory_sees_what_was_allocated_after_the_reset_and_not_before():
    # in a process of its own: here, garbage of earlier tests may be freed in between
    code = (
        "import torch; from harness.trial.timing import *; cpu = torch.device('cpu')\n"
        "def use(mib): return torch.ones(mib * 2**20 // 4).sum().item()\n"
        "start = peak_memory_mib(cpu); use(256); reset_peak_memory(cpu); use(64); print(peak_memory_mib(cpu) - start)"
    )
    grown = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert 48 < grown < 160
