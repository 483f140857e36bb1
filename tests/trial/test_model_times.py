"""The time that trials would take: what is timed, how often, and what minutes follow from it."""

import statistics
from collections import Counter
from functools import partial

import handmade
import pytest

from harness import plan
from harness.trial import laps, model_times
from harness.trial.model_times import ModelTime

CORPUS = (
    "  - markov: {vocab_size: 12, num_tokens: 400, branching: 3}",
    "  - markov: {vocab_size: 12, num_tokens: 400, branching: 3}",
)


@pytest.fixture
def specs(tmp_path):
    """A trial of each of two heads. 400 tokens in 4 columns of 100: 99 targets, 15 segments of 7 or fewer an epoch."""
    path = tmp_path / "suite.yaml"
    path.write_text(handmade.changed(CORPUS, ("seeds: [1, 2]", "seeds: [1]")))
    return list(plan.load(path).trials)


@pytest.fixture
def setting(tmp_path):
    return partial(handmade.task, runs=tmp_path / "runs")


@pytest.mark.parametrize(
    ("epochs", "milliseconds"),
    [
        (2, 2_000 * 60 + (2 * 40 + 2 * 10) * 30),
        (2.25, 2_250 * 60 + (3 * 40 + 2 * 10) * 30),
        (0, (40 + 2 * 10) * 30),  # an untrained model is validated, too
    ],
)
def test_minutes_are_those_of_all_steps_and_all_evaluations(epochs, milliseconds):
    time = ModelTime(train_ms=60.0, eval_ms=30.0, steps=1_000, valid_batches=40, test_batches=10)
    assert time.minutes(epochs) == pytest.approx(milliseconds / 60_000)


def test_each_model_takes_its_turn_in_each_round_and_its_first_batches_are_left_out(specs, setting, monkeypatch):
    asked, turns = Counter(), []

    def training(model, corpus, spec, *, lr):
        turns.append(spec.head.name)

        def timed(number):
            asked[spec.id] += number
            return [1e9] + [10.0 * len(turns)] * (number - 1)

        return timed

    monkeypatch.setattr(laps, "training", training)
    monkeypatch.setattr(laps, "evaluation", lambda model, corpus, spec: lambda number: [1e9] + [3.0] * (number - 1))
    found, unknown = model_times.model_times([setting(spec=spec) for spec in specs])
    first, second = (found[spec.id] for spec in specs)
    assert unknown == []
    assert turns == ["softmax", "mos"] * 4
    assert set(asked.values()) == {4 * (5 + 1)}  # 20 timed steps, and one before those of each turn
    assert first.train_ms == statistics.median([10, 30, 50, 70])
    assert second.train_ms == statistics.median([20, 40, 60, 80])
    assert (first.eval_ms, second.eval_ms) == (3.0, 3.0)


def test_steps_and_batches_are_counted_by_the_code_that_trains_and_evaluates(specs, setting):
    train = specs[0].train.model_copy(update={"eval_batch_size": 5})
    made = [specs[0].model_copy(update={"train": train})]
    time = model_times.model_times([setting(spec=spec) for spec in made])[0][made[0].id]
    # 99 targets in segments of 7; 40 tokens in 5 columns: 39 targets, columns of 8, a segment of 7 and one of 1
    assert (time.steps, time.valid_batches, time.test_batches) == (15, 2, 2)
    assert time.train_ms > 0
    assert time.eval_ms > 0


def test_a_planned_model_that_fails_is_named_and_the_others_are_timed(specs, setting, monkeypatch):
    build = model_times.build

    def fails(backbone, head, **more):
        if head.name == "softmax":
            raise MemoryError("no room\nand more")
        return build(backbone, head, **more)

    monkeypatch.setattr(model_times, "build", fails)
    found, unknown = model_times.model_times([setting(spec=spec) for spec in specs])
    assert list(found) == [specs[1].id]
    assert unknown == [f"{specs[0]} cannot be timed: MemoryError: no room"]


def test_nothing_is_written(specs, setting, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    model_times.model_times([setting(spec=spec) for spec in specs])
    assert sorted(tmp_path.rglob("*")) == before
