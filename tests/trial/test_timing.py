"""Times: whose turn it is, what is timed with which weights, what it says, and that nothing is changed."""

import random
from collections import Counter
from itertools import cycle, islice
from types import SimpleNamespace

import handmade
import numpy as np
import pytest
import torch
import trained
from small import model, spec, tokens

from harness.corpora.corpus import Corpus
from harness.model import build
from harness.plan.suite_file import MeasureSpec
from harness.records import store
from harness.training.checkpoint import BEST, weights_sha256
from harness.trial import timing as clock
from harness.trial.timing import exclusive_pass, in_turns, inference_times, model_times

CORPORA = (
    "  - markov: {vocab_size: 12, num_tokens: 400, branching: 3}",
    "  - markov: {vocab_size: [12, 9], num_tokens: 400, branching: 3}",
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Four trials of two corpora and two heads: their runs, their records, and a function that times some of these."""
    folder = tmp_path_factory.mktemp("ran")
    suite = trained.loaded(folder, handmade.changed(CORPORA, ("seeds: [1, 2]", "seeds: [1]")))
    records = [trained.ran(spec, folder / "runs") for spec in suite.trials]
    assert [record.status for record in records] == ["ok"] * 4

    def times(some, **more):
        tasks = [handmade.task(record.spec, folder / "runs", **more) for record in some]
        return exclusive_pass(tasks, {record.id: record for record in some})

    return SimpleNamespace(times=times, records=records, runs=folder / "runs")


@pytest.fixture(autouse=True)
def calm(monkeypatch):
    """A machine without other work, and little patience."""
    monkeypatch.setattr(clock.environment.OtherWork, "cores", lambda self: 0.125)
    monkeypatch.setattr(clock, "SECONDS", 0.001)


@pytest.fixture
def timed_with(monkeypatch):
    """The digests of the weights that are evaluated."""
    seen, evaluate = set(), clock.evaluate

    def looked(model, *arguments, **more):
        seen.add(weights_sha256(model.state_dict()))
        return evaluate(model, *arguments, **more)

    monkeypatch.setattr(clock, "evaluate", looked)
    return seen


def test_models_take_turns_in_rounds_within_their_corpus(ran):
    order = []
    tasks = [handmade.task(record.spec, ran.runs) for record in ran.records]
    a, b, c, d = (task.id for task in tasks)
    in_turns(tasks, lambda task, model, corpus: order.append(task.id), pytest.fail)
    assert order == [a, b] * 3 + [c, d] * 3
    taken, said = ran.times(ran.records)
    assert ([timing.trial for timing in taken], said) == ([a, b, c, d], [])
    assert {(timing.pass_id, timing.rounds) for timing in taken} == {(taken[0].pass_id, 3)}


@pytest.mark.parametrize("harm", ["none", "damaged", "another's"])
def test_the_weights_timed_are_those_of_the_record_or_initial_ones_which_it_says(ran, harm, timed_with):
    record, other = ran.records[:2]
    place, another = (store.folder(ran.runs, each.id) / BEST for each in (record, other))
    kept = place.read_bytes()
    place.unlink()
    place.write_bytes({"none": kept, "damaged": kept[:-1] + b"?", "another's": another.read_bytes()}[harm])
    try:
        (timing,), said = ran.times([record])
    finally:
        place.write_bytes(kept)
    spec = record.spec
    initial = weights_sha256(build(spec.backbone, spec.head, vocab_size=12, seed=1).state_dict())
    assert timed_with == {record.weights_sha256 if harm == "none" else initial}
    assert (timing.trial, timing.weights_sha256) == (record.id, record.weights_sha256)
    assert timing.initial == (harm != "none")
    sentence = f"{spec} ({record.id}) was timed with initial weights: its own are gone or damaged"
    assert said == ([] if harm == "none" else [sentence])


def test_a_pass_changes_no_file_no_record_no_weights_and_no_global_state(ran):
    def state():
        files = {path: path.read_bytes() for path in ran.runs.parent.rglob("*") if path.is_file()}
        generators = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        return files, generators, torch.get_num_threads(), torch.backends.mkldnn.matmul.fp32_precision

    before = state()
    ran.times(ran.records[:2])
    assert state() == before


def test_a_model_that_fails_is_named_and_the_others_are_timed(ran, monkeypatch):
    bad, times, calls = ran.records[0], clock.milliseconds, Counter()

    def fails_in_the_second_round(task, *more, lr):
        calls[task.id] += 1
        if task.id == bad.id and calls[bad.id] == 2:
            raise MemoryError("no room\nand more")
        return times(task, *more, lr=lr)

    monkeypatch.setattr(clock, "milliseconds", fails_in_the_second_round)
    taken, said = ran.times(ran.records[:2])
    assert [timing.trial for timing in taken] == [ran.records[1].id]
    assert said == [f"{bad.spec} ({bad.id}) could not be timed: MemoryError: no room"]
    assert calls == {bad.id: 2, ran.records[1].id: 3}


@pytest.mark.parametrize(
    ("told", "busy", "shared"),
    [(False, 0.49, False), (False, 0.5, True), (True, 0.25, True)],  # told by --shared
)
def test_other_work_on_the_machine_makes_a_timing_shared(ran, monkeypatch, told, busy, shared):
    monkeypatch.setattr(clock.environment.OtherWork, "cores", lambda self: busy)
    (timing,), _ = ran.times(ran.records[:1], shared=told)
    assert (timing.busy, timing.shared) == (busy, shared)


def test_inference_is_timed_where_the_suite_measures_it_and_what_was_never_trained_in_evaluation_only(ran):
    def kinds(record, **more):
        (timing,), said = ran.times([record], **more)
        assert said == []
        return {name.partition("_ms")[0] for name in timing.metrics}

    record = ran.records[0]
    assert kinds(record) == {"train", "eval"}
    assert kinds(record, measure=MeasureSpec(inference_batch=2)) == {"train", "eval", "inference"}
    untrained = record.spec.model_copy(update={"train": record.spec.train.model_copy(update={"epochs": 0.0})})
    assert kinds(record.model_copy(update={"spec": untrained, "curve": ()})) == {"eval"}


TOKENS = tokens(200)
SETTINGS = spec(seq_len=7).evaluation


@pytest.fixture
def inference(monkeypatch):
    """A function: tokens, in batches of 3 -> (metrics, what the model was given each time), by a clock that a call of
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

    def measure(tokens):
        measured = model()
        measured.register_forward_pre_hook(given)
        corpus = Corpus(vocab_size=12, train=tokens, valid=tokens, test=tokens)
        found = inference_times(measured, corpus, SETTINGS, batch=3, beat=lambda: None)
        return found, calls

    return measure


def test_twenty_batches_are_timed_after_five_with_the_device_waited_for(inference):
    found, calls = inference(TOKENS)
    # 66 tokens a column: 9 full segments of 7, and one of 2 that is left out; 25 calls go through them again and again
    table = TOKENS[:198].view(3, 66)
    expected = list(islice(cycle([table[:, at : at + 7] for at in range(0, 63, 7)]), 25))
    assert len(calls) == 25
    assert all(torch.equal(segment.inputs, wanted) for (segment,), wanted in zip(calls, expected, strict=True))
    # 6.5, 7.5, ... 25.5 ms: median 16; quartiles of 20 values, exclusive: 5.25 places from either end
    assert found == pytest.approx(
        {"inference_batch": 3, "inference_ms_per_batch": 16.0, "inference_ms_per_batch_iqr": 10.5}
    )


def test_steps_and_batches_are_counted_by_the_code_that_trains_and_evaluates_without_a_file(ran):
    """400 tokens in 4 columns of 100: 99 targets, 15 segments of 7 or fewer an epoch."""
    before, spec = sorted(ran.runs.parent.rglob("*")), ran.records[0].spec
    train = spec.train.model_copy(update={"eval_batch_size": 5})
    task = handmade.task(spec.model_copy(update={"train": train}), ran.runs)
    (time,) = model_times([task], pytest.fail).values()
    # 40 tokens in 5 columns: 39 targets, columns of 8, a segment of 7 and one of 1
    assert (time.steps, time.valid_batches, time.test_batches) == (15, 2, 2)
    assert min(time.train_ms, time.eval_ms) > 0
    assert sorted(ran.runs.parent.rglob("*")) == before
