"""Which trials are not converged, which rows are collapsed, and how often a learning rate decayed."""

import math

import pytest

from harness.plan.schedule import Schedule
from harness.report.convergence import (
    collapsed,
    collapsed_seeds,
    mark,
    mostly_unconverged,
    not_converged,
    unconverged_seeds,
)


@pytest.fixture
def row(table_of):
    return table_of(2, 4)([100.0] * 4)[0]


@pytest.mark.parametrize(
    ("valid", "expected"),
    [
        ([], False),  # not trained
        ([100.0], True),  # the only epoch is the last
        ([100.0, 99.9], True),  # the best is the last, however small the step
        ([100.0, 90.0, 90.0], False),  # of equal epochs the first is the best
        ([100.0, 90.0, 91.0], False),
        ([80.0, 100.0, 98.9], True),  # not the best, and still falling by 1.1 %
        ([80.0, 100.0, 99.1], False),  # by 0.9 %
    ],
)
def test_a_trial_is_not_converged_while_validation_falls(row, with_curve, valid, expected):
    assert not_converged(with_curve(row, valid).records[1]) is expected


@pytest.mark.parametrize(("epoch", "expected"), [(2.5, True), (3.0, False)])
def test_a_fall_is_counted_by_epoch(row, with_curve, epoch, expected):
    # 0.8 % in half an epoch is 1.6 % in a whole one
    record = with_curve(row, [80.0, 100.0, 99.2]).records[1]
    last = record.curve[-1].model_copy(update={"epoch": epoch})
    assert not_converged(record.model_copy(update={"curve": (*record.curve[:-1], last)})) is expected


@pytest.mark.parametrize(
    ("schedule", "valid", "expected"),
    [
        ({"step": {"after": 2, "factor": 0.25}}, [100.0, 90.0, 89.5], False),  # the best is the last by design
        ({"step": {"after": 2, "factor": 0.25}}, [100.0, 90.0, 89.0], True),  # falling by 1.1 %
        ({"step": {"after": 3, "factor": 0.25}}, [100.0, 90.0, 89.5], True),  # three epochs: it never decays
        ({"step": {"after": 2, "factor": 0.26}}, [100.0, 90.0, 89.5], True),  # it ends above a quarter
        ({"step": {"after": 1, "factor": 0.5}}, [100.0, 90.0, 89.5], False),  # two decays: a quarter
        ({"warmup": {"steps": 10, "decay": "cosine"}}, [100.0, 90.0, 89.5], False),
        ({"warmup": {"steps": 10, "decay": "cosine", "floor": 0.25}}, [100.0, 90.0, 89.5], False),
        ({"warmup": {"steps": 10, "decay": "cosine", "floor": 0.3}}, [100.0, 90.0, 89.5], True),  # hardly a decay
        ({"warmup": {"steps": 10}}, [100.0, 90.0, 89.5], True),
        ({"plateau": {"factor": 0.5}}, [100.0, 90.0, 89.5], True),
        ({"step": {"after": 1, "factor": 0.25}}, [100.0], True),  # of one epoch nothing is known
    ],
)
def test_the_last_epoch_may_be_the_best_where_the_rate_decays_to_the_end(row, with_curve, schedule, valid, expected):
    record = with_curve(row, valid).records[1]
    train = record.spec.train.model_copy(update={"schedule": Schedule(**schedule), "epochs": 3.0})
    assert (
        not_converged(record.model_copy(update={"spec": record.spec.model_copy(update={"train": train})})) is expected
    )


@pytest.mark.parametrize(
    ("valid", "rates", "expected"),
    [
        # six epochs with a tenth of the highest rate or more: the last two fell from 70 to 66, by 2.9 % an epoch
        ([100.0, 90.0, 80.0, 70.0, 68.0, 66.0, 65.9, 65.9], [8.0, 8.0, 4.0, 4.0, 2.0, 0.8, 0.7, 0.1], True),
        # by 0.7 % an epoch, although the whole training fell much
        ([100.0, 90.0, 80.0, 70.0, 69.5, 69.0, 68.9, 68.9], [8.0, 8.0, 4.0, 4.0, 2.0, 0.8, 0.7, 0.1], False),
        # frozen after one epoch
        ([100.0, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9], [8.0, 0.7, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], True),
        # frozen after two: 100 to 90 counts
        ([100.0, 90.0, 89.9, 89.9, 89.9, 89.9, 89.9, 89.9], [8.0, 0.8, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], True),
    ],
)
def test_a_rate_near_zero_does_not_hide_that_validation_was_falling(row, with_curve, valid, rates, expected):
    record = with_curve(row, valid, lr=rates).records[1]
    train = record.spec.train.model_copy(update={"schedule": Schedule(step={"after": 1, "factor": 0.5}), "epochs": 8.0})
    assert (
        not_converged(record.model_copy(update={"spec": record.spec.model_copy(update={"train": train})})) is expected
    )


def test_most_is_more_than_half_of_the_ok_trials(row, with_curve):
    falling = [100.0, 50.0]
    assert unconverged_seeds(with_curve(row, falling, trials=2)) == [1, 2]
    assert [mostly_unconverged(with_curve(row, falling, trials=n)) for n in (0, 2, 3, 4)] == [False, False, True, True]


# the unigram model of these records has 1100
@pytest.mark.parametrize(("ppl", "expected"), [(1044.9, False), (1045.1, True), (5000.0, True)])
def test_a_row_near_the_unigram_is_collapsed(table_of, ppl, expected):
    (row,) = table_of(2, 2)([ppl - 1, ppl + 1])
    assert collapsed(row) is expected
    assert mark(row) == ("↓" if expected else "")


def test_collapsed_is_of_the_mean_over_finished_trials(table_of):
    one, other, none = table_of(3, 3)([1100.0, 900.0, 900.0], [math.nan, 1050.0, None], [math.nan] * 3)
    assert [collapsed(row) for row in (one, other, none)] == [False, True, False]


def test_a_collapsed_seed_of_a_row_is_known(table_of):
    one, other, none = table_of(3, 3)([900.0, 1046.0, 900.0], [1100.0] * 3, [math.nan] * 3)
    assert [collapsed_seeds(row) for row in (one, other, none)] == [[2], [1, 2, 3], []]


def test_both_marks_of_a_row(table_of, with_curve):
    (row,) = table_of(2, 2)([2000.0, 2000.0])
    assert mark(with_curve(row, [100.0, 50.0], trials=1)) == "↓"
