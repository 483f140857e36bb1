"""Which trials the leaderboard compares: those that differ only in settings known not to change what a number means."""

import handmade
import pytest

from harness.board.groups import Finished, groups
from harness.plan.specs import COMPARED, DECIDES_NO_RESULT, Contents, EvalSpec, TrainSpec


class Extended(TrainSpec):
    """Training with a setting that this version of the harness does not have."""

    dynamic: bool = False


def finished(kind=TrainSpec, seed=1, **changes) -> Finished:
    spec = handmade.record().spec
    train = kind(**{**spec.train.model_dump(), **changes})
    record = handmade.record(spec=spec.model_copy(update={"train": train, "seed": seed}))
    return Finished(record=record, contents=Contents(corpus="0" * 64), timing=None, suites=("small",))


def sizes(*trials: Finished) -> list[int]:
    """Rows of each group."""
    return [len(group.entries) for group in groups(trials)]


def test_a_setting_that_is_added_separates_groups():
    assert sizes(finished(Extended), finished(Extended, lr=0.125)) == [2]
    assert sizes(finished(Extended), finished(Extended, dynamic=True)) == [1, 1]


def test_a_trial_from_before_a_setting_was_added_compares_with_its_default():
    old = finished().record.spec.train.model_dump()
    assert sizes(finished(Extended, **old), finished(Extended, dynamic=False, lr=0.125)) == [2]


CHANGES = {
    "epochs": 3.0,
    "finetune": {"epochs": 2},
    "seq_len": 5,
    "batching": "blocks",
    "eval_batch_size": 11,
    "eval_stride": 2,
    "eval_batches": 7,
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_setting_of_evaluation_and_the_budget_separate_groups(name):
    assert sizes(finished(), finished(**{name: CHANGES[name]})) == [1, 1]


def test_no_setting_of_evaluation_is_among_those_that_are_compared():
    assert CHANGES.keys() == {"epochs", "finetune", *EvalSpec.model_fields}
    assert TrainSpec.model_fields.keys() == COMPARED | DECIDES_NO_RESULT | CHANGES.keys()
    assert not COMPARED & CHANGES.keys()
