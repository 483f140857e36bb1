"""Calls take turns; memory is measured in processes of their own."""

import os
from functools import partial

import pytest
import torch

from harness.benchmarks import measure
from harness.benchmarks.measure import extra_mib, in_new_process, interleaved, on_cpu
from harness.errors import ExecutionError

CPU = torch.device("cpu")


@pytest.mark.parametrize(("twice", "made"), [(False, 3 * "abc"), (True, 2 * "aabbcc")])
def test_calls_take_turns_and_the_first_round_or_each_first_call_is_dropped(twice, made):
    order = []
    taken = interleaved({name: lambda name=name: order.append(name) for name in "abc"}, 2, CPU, twice=twice)
    assert order == list(made)
    assert {name: len(values) for name, values in taken.items()} == {"a": 2, "b": 2, "c": 2}


def test_only_the_call_is_timed():
    ticks = iter([0.0, 0.1, 5.0, 7.0])  # the warm-up, and a round of two seconds
    by_ticks = partial(on_cpu, clock=lambda: next(ticks))
    assert interleaved({"a": lambda: None}, 1, CPU, measure=by_ticks) == {"a": (2000.0,)}


@pytest.mark.system
def test_a_process_of_its_own_has_threads_and_variables_of_its_own():
    before = dict(os.environ)
    given = {"threads": 3, "variables": {"BENCHMARKED": "yes", "LC_ALL": "C"}}
    assert in_new_process(torch.get_num_threads, threads=3) == 3
    found = in_new_process(os.getpid, **given), in_new_process(os.getenv, "BENCHMARKED", **given)
    assert found[0] != os.getpid()
    assert found[1] == "yes"
    assert dict(os.environ) == before


@pytest.mark.system
def test_what_a_process_raises_is_raised_and_a_killed_one_too():
    with pytest.raises(ValueError, match="invalid literal"):
        in_new_process(int, "seven")
    with pytest.raises(RuntimeError):
        in_new_process(os._exit, 9)


@pytest.mark.parametrize("resident", [10.0, None])
def test_a_peak_that_is_not_reset_is_no_number(monkeypatch, resident):
    monkeypatch.setattr(measure, "resident_mib", lambda: resident)
    monkeypatch.setattr(measure, "peak_memory_mib", lambda device: 500.0)
    with pytest.raises(ExecutionError, match="does not reset"):
        extra_mib(lambda: None, CPU)
