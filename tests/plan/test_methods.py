"""Tuning methods: what is due, and that a new method is one class, with settings of its own."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import handmade
import pytest
from pydantic import Field

from harness import plan
from harness.errors import RecordError
from harness.execution.executors import RunOptions
from harness.execution.run_suite import due
from harness.plan import tuning
from harness.plan.specs import TrialSpec
from harness.plan.suite import Row
from harness.plan.tuning import Choice, TuneSpec, lowest
from harness.records import choices, store
from harness.records.record import TrialRecord
from harness.report import tuning_doubts
from harness.report.evidence import gather
from harness.report.figures import learning

SUITE = handmade.changed(("optimizer: adam, lr: 0.01, epochs: 2", "optimizer: sgd, lr: 1.0, epochs: 8"))
SUITE += "tune: {seed: 9, space: {train.lr: [0.5, 1.0, 2.0, 4.0]}}\n"
HALVED = SUITE.replace("seed: 9,", "seed: 9, method: halving, rungs: 3,")


class Halving(TuneSpec):
    """Every point for a quarter of the epochs, the better half for half of them, and so on: successive halving.

    Args:
        rungs: how many lengths there are, each half of the next one.
    Source: Jamieson and Talwalkar (2016).
    """

    rungs: Annotated[int, Field(ge=1)] = 2
    rule = "Half of the points were stopped at each length but the last."

    def lengths(self, epochs: float) -> list[float]:
        return [epochs / 2**left for left in reversed(range(self.rungs))]

    def next(self, row: Row, ppl: Mapping[str, float | None]) -> list[TrialSpec] | Choice:
        points = list(row.candidates)
        for rung in range(len(points[0].tuning_trials)):
            trials = [point.tuning_trials[rung] for point in points]
            if missing := [trial for trial in trials if trial.id not in ppl]:
                return missing
            points.sort(
                key=lambda point: (ppl[point.tuning_trials[rung].id] is None, ppl[point.tuning_trials[rung].id] or 0.0)
            )
            points = points[: max(1, len(points) // 2)]
        return lowest(row, [points[0].tuning_trials[-1]], ppl)

    @staticmethod
    def allows(choice: Choice) -> bool:
        return choice.trial is None or choice.valid_ppl.get(choice.trial) is not None


@pytest.fixture
def halving(monkeypatch):
    """Halving is known as the method 'halving'."""
    monkeypatch.setitem(tuning.METHODS, "halving", Halving)


@pytest.fixture
def made(tmp_path):
    """A function: the text of a suite, the perplexity of a trial -> what was run until nothing was due, each batch as
    (head, learning rate, epochs, seed), and the records.
    """

    def loaded(text: str, perplexity, options: RunOptions | None = None):
        path = tmp_path / "small.yaml"
        path.write_text(text)
        suite, ran, tried = plan.load(path), [], set()
        records = choices.read(suite, tmp_path, pytest.fail)
        while todo := due(records, options or RunOptions(), tried):
            ran.append([(t.head.name, t.train.lr, t.train.epochs, t.seed) for t in todo])
            for trial in todo:
                store.save(record(trial, perplexity(trial), suite), records.runs)
            tried |= {trial.id for trial in todo}
            records = choices.read(suite, tmp_path, pytest.fail)
        return ran, records

    def record(trial: TrialSpec, ppl: float | None, suite: plan.Suite) -> TrialRecord:
        tuned = trial.id in {each.id for each in suite.tuning_trials}
        kept = {"metrics": {**handmade.record(spec=trial).metrics, "valid_ppl": ppl}} if ppl is not None else {}
        failed = {"status": "diverged", "message": "nan"} if ppl is None else {}
        return handmade.record(spec=trial, suite="small").model_copy(update={**kept, **failed, "tuning": tuned})

    return loaded


def best_at(trial: TrialSpec) -> float:
    """Softmax is best at 2, the mixture at 0.5; a longer training is better."""
    return 5.0 + abs(trial.train.lr - (2.0 if trial.head.name == "softmax" else 0.5)) + 1 / trial.train.epochs


def test_every_point_is_tried_once_and_then_the_table(made):
    ran, _ = made(SUITE, best_at)
    rates = (0.5, 1.0, 2.0, 4.0)
    assert ran == [
        [(head, lr, 8.0, 9) for head in ("softmax", "mos") for lr in rates],
        [(head, lr, 8.0, seed) for head, lr in (("softmax", 2.0), ("mos", 0.5)) for seed in (1, 2)],
    ]


@pytest.mark.parametrize(
    ("options", "again"),
    [({"retry_failed": True}, 2), ({"force": True}, 8), ({"force": True, "only": ("head=mos",)}, 4)],
)
def test_what_has_a_record_runs_again_only_where_that_is_asked_for(made, options, again):
    _, records = made(SUITE, lambda trial: None if trial.train.lr == 4.0 else best_at(trial))
    todo = due(records, RunOptions(**options))
    assert [trial.seed for trial in todo] == [9] * again  # tuning trials come first
    later = due(records, RunOptions(**options), {trial.id for trial in todo})
    assert [trial.seed for trial in later] == ([1, 2] * (again // 4) if "force" in options else [])


def test_a_trial_that_could_not_be_certified_runs_again_with_those_that_failed(made):
    _, records = made(SUITE, best_at)
    trial = records.suite.trials[-1].id
    without = records.table[trial].model_copy(update={"certificate": None, "not_certified": "no process"})
    records = replace(records, table={**records.table, trial: without})
    assert not due(records, RunOptions())
    assert [each.id for each in due(records, RunOptions(retry_failed=True))] == [trial]


def test_successive_halving_is_one_class(made, halving):
    ran, records = made(HALVED, best_at)
    softmax = [[each[1:3] for each in batch if each[0] == "softmax"] for batch in ran[:3]]
    assert softmax == [[(lr, 2.0) for lr in (0.5, 1.0, 2.0, 4.0)], [(2.0, 4.0), (1.0, 4.0)], [(2.0, 8.0)]]
    assert ran[3:] == [[(head, lr, 8.0, s) for head, lr in (("softmax", 2.0), ("mos", 0.5)) for s in (1, 2)]]
    # the choice is stored and read, though half of the points have no record of the whole length
    kept = choices.keep(records, records.suite.tuned_rows)
    again = choices.read(records.suite, records.runs.parents[1], pytest.fail)
    assert again.stored == kept.stored
    assert [choice.point for choice in again.stored] == [{"train.lr": 2.0}, {"train.lr": 0.5}]


def test_perplexities_of_different_lengths_are_not_compared(made, halving):
    _, records = made(HALVED.replace("rungs: 3", "rungs: 2"), best_at)
    suite = records.suite
    row, choice = suite.tuned_rows[0], suite.tuned_rows[0].choice
    compared = [(point["train.lr"], trial.train.epochs) for point, trial in row.compared(choice)]
    assert (choice.point, compared) == ({"train.lr": 2.0}, [(1.0, 8.0), (2.0, 8.0)])
    # at 4.0 there is a trial of 4 epochs only: how low the curve is above 2.0 is not known
    assert tuning_doubts.of_row(row, choice, suite.tune.space) == math.inf
    evidence = gather(records, pytest.fail)
    _, mos = learning.tried("train.lr", evidence.rows, suite)
    assert mos.lowest == {0.5: 5 + 0 + 1 / 8, 1.0: 5 + 0.5 + 1 / 8}


def test_settings_of_a_method_are_checked_at_their_place(problems, halving):
    for given, place, what in (
        ("method: halving, rung: 3", "rung", "unknown key 'rung'; did you mean 'rungs'?"),
        ("rungs: 3", "rungs", "unknown key 'rungs'"),  # of another method
        ("method: halve, rungs: 3", "method", "expected one of once, halving, got 'halve'"),
    ):
        found = problems(SUITE.replace("seed: 9,", f"seed: 9, {given},"))
        assert any(each.endswith(f": tune.{place}: {what}") for each in found)


@pytest.mark.parametrize("trial", [None, "another of its trials"])
def test_a_choice_that_is_not_the_lowest_perplexity_is_refused(made, trial):
    _, records = made(SUITE, best_at)
    first, second = (row.choose({t.id: best_at(t) for t in row.tuning_trials}) for row in records.suite.tuned_rows)
    assert first.model_dump().keys() == {"row", "trial", "point", "valid_ppl"}  # as before there were other methods
    others = [each for each in first.valid_ppl if each != first.trial]
    chosen = others[0] if trial == "another of its trials" else trial
    choices.save(records.runs, [first.model_copy(update={"trial": chosen}), second])
    with pytest.raises(RecordError, match="the choice of 'softmax lstm markov' cannot be made of the perplexities"):
        choices.load(records.runs)
