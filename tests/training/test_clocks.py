"""Clocks and memory."""

import subprocess
import sys

import pytest
import torch

from harness.training import clocks
from harness.training.clocks import RECENT, WARMUP_BATCHES, Clock, Clocks

CPU = torch.device("cpu")


def timed(milliseconds) -> Clock:
    clock = Clock(CPU)
    clock.milliseconds = milliseconds
    return clock


def test_warmup_is_left_out_of_median_and_quartiles_and_two_batches_are_needed():
    # quartiles of 10, 20, 30 at (n + 1) p: positions 1, 2, 3
    expected = {"train_ms_per_batch": 20.0, "train_ms_per_batch_iqr": 20.0}
    assert timed([1e6] * WARMUP_BATCHES + [10.0, 20.0, 30.0]).summary("train") == expected
    for laps in (0, WARMUP_BATCHES, WARMUP_BATCHES + 1):
        assert timed([1.0] * laps).summary("train") == {}


class Stream:
    """A GPU of which nothing is there but its clock: it reaches an event when `passed` says so."""

    def __init__(self):
        self.events, self.passed, self.waits = [], 0, 0

    def event(self, enable_timing):
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, stream):
        self.stream = stream

    def record(self):
        self.number = len(self.stream.events)
        self.stream.events.append(self)

    def query(self):
        return self.number < self.stream.passed

    def synchronize(self):
        if not self.query():
            self.stream.waits, self.stream.passed = self.stream.waits + 1, self.number + 1

    def elapsed_time(self, end):
        assert self.query()
        assert end.query()
        return float((end.number - self.number) * 100 + end.number)


@pytest.fixture
def stream(monkeypatch):
    gpu = Stream()
    monkeypatch.setattr(clocks.torch.cuda, "Event", gpu.event)
    return gpu


def laps(clock, number):
    for _ in range(number):
        with clock.lap():
            pass


def test_on_a_gpu_a_lap_waits_for_nothing_and_the_last_one_through_is_read(stream):
    clock = Clock(torch.device("cuda"))
    laps(clock, 3)  # events 0 1, 2 3, 4 5
    assert clock.recent() is None
    stream.passed = 3  # within the second lap
    assert clock.recent() == 101.0
    stream.passed = 4
    assert clock.recent() == 103.0
    assert (stream.waits, clock.milliseconds) == (0, [101.0, 103.0])


def test_on_a_gpu_every_lap_is_in_the_figures_once_in_order(stream):
    clock = Clock(torch.device("cuda"))
    laps(clock, WARMUP_BATCHES)
    clock.settle()
    laps(clock, 3)
    stream.passed = 2 * WARMUP_BATCHES + 2
    assert clock.recent() == 100.0 + 2 * WARMUP_BATCHES + 1
    # the three laps after warm-up end at events 11, 13 and 15
    assert clock.summary("eval") == {"eval_ms_per_batch": 113.0, "eval_ms_per_batch_iqr": 4.0}
    assert len(clock.milliseconds) == WARMUP_BATCHES + 3


def test_the_recent_time_is_a_median_of_the_last_batches_after_warm_up():
    assert timed([900.0] * 2).recent() == 900.0  # warm-up alone: better than nothing
    assert timed([900.0] * WARMUP_BATCHES + [85.0] * 20 + [10.0]).recent() == 85.0  # an epoch's last batch is short
    assert timed([85.0] * 1000 + [170.0] * (RECENT // 2 + 1)).recent() == 170.0  # a machine that becomes slower


@pytest.mark.system
def test_peak_memory_sees_what_was_allocated_after_the_reset_and_not_before():
    # in a process of its own: here, garbage of earlier tests may be freed in between
    code = (
        "import torch; from harness.training.clocks import *; cpu = torch.device('cpu')\n"
        "def use(mib): return torch.ones(mib * 2**20 // 4).sum().item()\n"
        "start = peak_memory_mib(cpu); use(256); reset_peak_memory(cpu); use(64); print(peak_memory_mib(cpu) - start)"
    )
    grown = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert 48 < grown < 160


def test_warmup_is_left_out_of_every_session_of_a_trial():
    before, clocks = Clocks(CPU), Clocks(CPU)
    before.train.milliseconds = [1e6] * WARMUP_BATCHES + [10.0, 20.0]
    clocks.load_state_dict(before.state_dict())
    clocks.train.milliseconds += [1e6] * WARMUP_BATCHES + [30.0]
    assert clocks.train.measured() == [10.0, 20.0, 30.0]
    assert clocks.summary() == {"train_ms_per_batch": 20.0, "train_ms_per_batch_iqr": 20.0}
