"""Measuring: everything agrees before it is timed, and is timed in turns. No speed is asserted."""

from dataclasses import replace

import pytest
import torch

from harness.benchmarks import baselines, memory, rounds, speed
from harness.benchmarks.cells import IMPLEMENTATIONS, Cell
from harness.benchmarks.settings import ALL_HEADS, SETTINGS, Setting
from harness.benchmarks.speed import Comparison
from harness.errors import ExecutionError

CPU = torch.device("cpu")
WAYS = [("fp32", "default"), ("bf16", "default")]


def compared(**changes) -> Comparison:
    impls = tuple(name for name in IMPLEMENTATIONS if name != "compiled")
    given = {"setting": SETTINGS["tiny"], "device": CPU, "heads": ALL_HEADS, "impls": impls, "ways": WAYS, "rounds": 2}
    return Comparison(**{**given, **changes})


def test_a_wrong_loss_is_refused_before_anything_is_timed(monkeypatch):
    def wrong(mixture, targets):
        return 1.001 * baselines.target_only(mixture, targets)

    monkeypatch.setitem(IMPLEMENTATIONS, "target-only", (lambda: wrong, lambda mixture, device: ""))
    monkeypatch.setattr(speed, "interleaved", lambda *_: pytest.fail("timed"))
    with pytest.raises(ExecutionError, match=r"softmax target-only fp32 default: the loss is .* nothing is timed"):
        speed.measure("head", compared(heads=("softmax",)))


def test_a_library_that_fails_is_lacking(monkeypatch):
    def broken(mixture, targets):
        raise RuntimeError("no kernel")

    monkeypatch.setitem(IMPLEMENTATIONS, "torch", (lambda: broken, lambda mixture, device: ""))
    found = speed.measure("head", compared(heads=("softmax",), rounds=1))
    assert {each.lacking for each in found.cells if each.impl == "torch"} == {"failed: RuntimeError"}


def test_calls_take_turns_and_the_first_round_is_dropped():
    order = []
    taken = rounds.interleaved({name: lambda name=name: order.append(name) for name in "abc"}, 2, CPU)
    assert order == list("abcabcabc")
    assert {name: len(values) for name, values in taken.items()} == {"a": 2, "b": 2, "c": 2}


def test_every_call_is_made_twice_where_that_is_asked_for():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    taken = rounds.interleaved(calls, 1, CPU, twice=True)
    assert order == list("aabb") * 2
    assert [len(times) for times in taken.values()] == [1, 1]


def test_inference_is_of_the_whole_model_and_of_every_implementation_that_can():
    heads = ("poster-softmax", "poster-mos3", "mfs-inputs")
    found = speed.measure("inference", compared(setting=replace(SETTINGS["tiny"], tokens=40), heads=heads, rounds=1))
    measured = {(each.head, each.impl) for each in found.cells if each.values}
    assert {(head, impl) for head in heads for impl in ("ours", "published", "target-only")} <= measured


@pytest.mark.parametrize(("name", "tokens"), [("ptb", 700), ("tiny", 42)])
def test_inference_of_other_sizes_is_refused(name, tokens):
    with pytest.raises(ExecutionError, match="expected gpt2-small or tiny and a multiple of 4 tokens"):
        speed.measure("inference", compared(setting=replace(SETTINGS[name], tokens=tokens), heads=("softmax",)))


def test_a_step_of_other_sizes_is_refused():
    with pytest.raises(ExecutionError, match="a multiple of 35 tokens"):
        speed.measure("step", compared(setting=replace(SETTINGS["tiny"], tokens=71)))


def test_the_peak_of_the_published_form_holds_all_probabilities():
    # its logits and probabilities are (N, K, V) each, and both are alive: 2 x 20,000 x 2 x 97 x 4 bytes = 30 MB
    wide: Setting = replace(SETTINGS["tiny"], tokens=20_000)
    found = memory.measure(compared(setting=wide, heads=("mos2",), impls=("published",), ways=WAYS[:1]))
    assert found.medians()[Cell("mos2", "published", "fp32", "default")] * 2**20 > 2 * 20_000 * 2 * 97 * 4


def test_what_finds_no_memory_is_lacking_but_ours_is_not_excused(monkeypatch):
    def large(mixture, targets):
        raise torch.OutOfMemoryError("400 GiB")

    monkeypatch.setitem(IMPLEMENTATIONS, "published", (lambda: large, lambda mixture, device: ""))
    found = speed.measure("eval", compared(heads=("softmax",), rounds=1))
    assert {each.lacking for each in found.cells if each.impl == "published"} == {"failed: OutOfMemoryError"}
    monkeypatch.setitem(IMPLEMENTATIONS, "ours", (lambda: large, lambda mixture, device: ""))
    with pytest.raises(torch.OutOfMemoryError):
        speed.measure("eval", compared(heads=("softmax",), rounds=1))


def test_a_process_that_fails_is_an_error_for_ours_and_a_lack_for_a_baseline(monkeypatch):
    monkeypatch.setattr(memory.sys, "executable", "false")
    reached = Cell("softmax", "published", "fp32", "default")
    assert memory._in_fresh_process(reached, SETTINGS["tiny"], CPU, 1) == {"lacking": "failed: exit code 1"}
    with pytest.raises(ExecutionError, match="bench memory: softmax ours fp32 default: exit code 1"):
        memory.measure(compared(heads=("softmax",), impls=("ours",)))
