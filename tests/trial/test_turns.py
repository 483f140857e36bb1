"""Times: whose turn it is, what is timed with which weights, what it says, and that nothing is changed."""

import random
from collections import Counter
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace

import handmade
import numpy as np
import pytest
import torch

from harness import plan
from harness.model import build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.plan.suite_file import MeasureSpec
from harness.records import store
from harness.training.checkpoint import BEST, load_weights, weights_sha256
from harness.trial import turns as clock
from harness.trial.run import run
from harness.trial.turns import inference_times, timed, turns

CORPORA = (
    "  - markov: {vocab_size: 12, num_tokens: 400, branching: 3}",
    "  - markov: {vocab_size: [12, 9], num_tokens: 400, branching: 3}",
)


def taken_of(records, setting):
    return timed([setting(spec=record.spec) for record in records], {record.id: record for record in records})


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Four trials: two corpora, two heads, one seed."""
    folder = tmp_path_factory.mktemp("ran")
    path = folder / "suite.yaml"
    path.write_text(handmade.changed(CORPORA, ("seeds: [1, 2]", "seeds: [1]")))
    setting = partial(handmade.task, runs=folder / "runs")
    made = [run(setting(spec=spec)) for spec in plan.load(path).trials]
    assert [record.status for record in made] == ["ok"] * 4
    return SimpleNamespace(setting=setting, records=made, folder=folder)


@pytest.fixture(autouse=True)
def calm(monkeypatch):
    """A machine without other work, and little patience."""
    monkeypatch.setattr(clock.environment, "busy_cores", lambda: 0.125)
    monkeypatch.setattr(clock, "SECONDS", 0.001)


def laps_of(monkeypatch, *durations: list[float]):
    """Let each turn, one after the other, have trained batches of so many milliseconds after warm-up."""
    left = iter(durations)

    def visit(taken, task, model, corpus, *, lr):
        taken.train += next(left)

    monkeypatch.setattr(clock.Taken, "visit", visit)


def test_models_take_turns_in_rounds_within_their_corpus(ran):
    order = []
    tasks = [ran.setting(spec=record.spec) for record in ran.records]
    a, b, c, d = (task.id for task in tasks)
    ends = list(turns(tasks, lambda task, model, corpus: order.append(task.id)))
    assert order == [a, b] * 3 + [c, d] * 3
    assert [(turn.tasks[0].id, turn.fault) for turn in ends] == [(trial, "") for trial in order]
    taken, said = taken_of(ran.records, ran.setting)
    assert [timing.trial for timing in taken] == [a, b, c, d]
    assert said == []
    assert len({timing.pass_id for timing in taken}) == 1
    assert {timing.rounds for timing in taken} == {3}


def test_the_weights_timed_are_those_of_the_record(ran, monkeypatch):
    seen, evaluate = set(), clock.evaluate

    def looked(model, tokens, spec, **more):
        seen.add(weights_sha256(model.state_dict()))
        assert torch.equal(tokens, tokens_of(ran.records[0]))
        return evaluate(model, tokens, spec, **more)

    monkeypatch.setattr(clock, "evaluate", looked)
    (timing,), said = taken_of(ran.records[:1], ran.setting)
    assert seen == {ran.records[0].weights_sha256}
    assert (timing.initial, said) == (False, [])
    assert (timing.trial, timing.weights_sha256) == (ran.records[0].id, ran.records[0].weights_sha256)


def tokens_of(record):
    return clock.load_planned(record.spec, Path("no data"), {}).test


@pytest.mark.parametrize("harm", ["gone", "damaged", "another's"])
def test_without_its_weights_a_model_is_timed_with_initial_ones_and_says_so(ran, harm, monkeypatch):
    record, seen, evaluate = ran.records[0], set(), clock.evaluate
    place = store.folder(ran.setting.keywords["runs"], record.id) / BEST
    kept = place.read_bytes()
    other = store.folder(ran.setting.keywords["runs"], ran.records[1].id) / BEST

    def looked(model, *arguments, **more):
        seen.add(weights_sha256(model.state_dict()))
        return evaluate(model, *arguments, **more)

    monkeypatch.setattr(clock, "evaluate", looked)
    place.unlink()
    try:
        if harm != "gone":
            place.write_bytes(kept[:-1] + b"?" if harm == "damaged" else other.read_bytes())
        (timing,), (said,) = taken_of([record], ran.setting)
    finally:
        place.write_bytes(kept)
    spec = record.spec
    assert seen == {weights_sha256(build(spec.backbone, spec.head, vocab_size=12, seed=1).state_dict())}
    assert timing.initial
    assert timing.weights_sha256 == record.weights_sha256
    assert said == f"{spec} ({record.id}) was timed with initial weights: its own are gone or damaged"


@pytest.mark.guards("timing-changes-nothing")
def test_a_pass_changes_no_file_no_record_no_weights_and_no_global_state(ran):
    files = {path: path.read_bytes() for path in sorted(ran.folder.rglob("*")) if path.is_file()}
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    threads, multiplied = torch.get_num_threads(), torch.backends.mkldnn.matmul.fp32_precision
    taken_of(ran.records[:2], ran.setting)
    assert {path: path.read_bytes() for path in sorted(ran.folder.rglob("*")) if path.is_file()} == files
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
    assert (torch.get_num_threads(), torch.backends.mkldnn.matmul.fp32_precision) == (threads, multiplied)
    weights = load_weights(store.folder(ran.setting.keywords["runs"], ran.records[0].id) / BEST, "cpu")
    assert weights_sha256(weights) == ran.records[0].weights_sha256


@pytest.mark.guards("timing-of-one-model-fails")
def test_a_model_that_fails_is_named_and_the_others_are_timed(ran, monkeypatch):
    bad, visit, calls = ran.records[0], clock.Taken.visit, Counter()

    def fails_in_the_second_round(taken, task, *more, lr):
        calls[task.id] += 1
        if task.id == bad.id and calls[bad.id] == 2:
            raise MemoryError("no room\nand more")
        visit(taken, task, *more, lr=lr)

    monkeypatch.setattr(clock.Taken, "visit", fails_in_the_second_round)
    taken, said = taken_of(ran.records[:2], ran.setting)
    assert [timing.trial for timing in taken] == [ran.records[1].id]
    assert said == [f"{bad.spec} ({bad.id}) could not be timed: MemoryError: no room"]
    assert calls == {bad.id: 2, ran.records[1].id: 3}


def test_a_corpus_that_cannot_be_had_costs_its_own_models_only(ran, monkeypatch):
    load = clock.load_planned

    def gone(spec, *more):
        if spec.corpus.params["vocab_size"] == 12:
            raise OSError("no such text")
        return load(spec, *more)

    monkeypatch.setattr(clock, "load_planned", gone)
    taken, said = taken_of(ran.records, ran.setting)
    assert [timing.trial for timing in taken] == [record.id for record in ran.records[2:]]
    assert len(said) == 2
    assert all("OSError: no such text" in each for each in said)


@pytest.mark.guards("other-work-noticed")
@pytest.mark.parametrize(
    ("looks", "told", "busy", "shared"),
    [
        ([0.25], False, 0.25, False),
        ([0.25], True, 0.25, True),  # --shared
        ([2.0, 0.49], False, 0.49, False),  # what ran before was still ending
        ([2.0, 1.75, 0.5], False, 0.5, True),
    ],
)
def test_other_work_on_the_machine_makes_a_timing_shared(ran, monkeypatch, looks, told, busy, shared):
    laps_of(monkeypatch, *[[1.0, 2.0]] * 3)
    left = iter(looks)
    monkeypatch.setattr(clock.environment, "busy_cores", lambda: next(left))
    setting = partial(ran.setting, shared=told)
    (timing,), _ = taken_of(ran.records[:1], setting)
    assert (timing.busy, timing.shared) == (busy, shared)
    assert list(left) == []


def test_inference_is_timed_where_the_suite_measures_it(ran):
    setting = partial(handmade.task, runs=ran.setting.keywords["runs"],
        measure=MeasureSpec(inference_batch=2),
    )  # fmt: skip
    (timing,), _ = taken_of(ran.records[:1], setting)
    kinds = ("train", "eval", "inference")
    assert set(timing.metrics) == {f"{kind}_ms_per_batch{more}" for kind in kinds for more in ("", "_iqr")}
    (without,), _ = taken_of(ran.records[:1], ran.setting)
    assert set(without.metrics) == {name for name in timing.metrics if not name.startswith("inference")}


def test_what_was_never_trained_is_timed_in_evaluation_only(ran):
    record = ran.records[0]
    untrained = record.spec.train.model_copy(update={"epochs": 0.0})
    made = record.model_copy(update={"spec": record.spec.model_copy(update={"train": untrained}), "curve": ()})
    (timing,), said = taken_of([made], ran.setting)
    assert set(timing.metrics) == {"eval_ms_per_batch", "eval_ms_per_batch_iqr"}
    assert (timing.batches, said) == (0, [])


V = 12
TOKENS = torch.randint(V, (200,), generator=torch.Generator().manual_seed(0))
LSTM = ComponentSpec(name="lstm", params={"d_model": 8, "num_layers": 1, "dropout": 0.5})


def evaluation(**changes):
    settings = {"optimizer": "sgd", "lr": 0.5, "epochs": 1, "batch_size": 4, "seq_len": 7}
    return TrainSpec(**{**settings, **changes}).evaluation


@pytest.fixture
def inference(monkeypatch):
    """A function: tokens, settings, batch -> (metrics, what the model was given each time), by a clock that a call of
    the model moves on by 1, 2, 3 ... ms and waiting for the device by 0.5 ms.
    """
    now, calls = [0.0], []

    def wait(device):
        now[0] += 0.0005

    def given(module, arguments):
        assert not module.training
        assert not torch.is_grad_enabled()
        calls.append(arguments)
        now[0] += len(calls) / 1e3

    monkeypatch.setattr(clock, "_wait", wait)
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])

    def measure(tokens, settings, batch):
        model, beats = build(LSTM, ComponentSpec(name="softmax"), vocab_size=V, seed=1), []
        model.register_forward_pre_hook(given)
        found = inference_times(model, tokens, settings, batch=batch, beat=lambda: beats.append(1))
        assert len(beats) == len(calls)
        return found, calls

    return measure


def test_twenty_batches_are_timed_after_five_with_the_device_waited_for(inference):
    found, calls = inference(TOKENS, evaluation(), 3)
    # 66 tokens a column: 9 full segments of 7, and one of 2 that is left out; 25 calls go through them again and again
    table = TOKENS[:198].view(3, 66)
    expected = list(islice(cycle([table[:, at : at + 7] for at in range(0, 63, 7)]), 25))
    assert len(calls) == 25
    assert all(torch.equal(segment.inputs, wanted) for (segment,), wanted in zip(calls, expected, strict=True))
    # 6.5, 7.5, ... 25.5 ms: median 16; quartiles of 20 values, exclusive: 5.25 places from either end
    assert found == pytest.approx(
        {"inference_batch": 3, "inference_ms_per_batch": 16.0, "inference_ms_per_batch_iqr": 10.5}
    )


def test_a_split_without_a_full_batch_has_no_time(inference):
    assert inference(TOKENS[:23], evaluation(), 3) == ({}, [])  # 7 tokens a column: one segment of 6
    assert inference(TOKENS[:0], evaluation(), 3) == ({}, [])
