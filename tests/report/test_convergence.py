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

QUARTER = {"step": {"after": 2, "factor": 0.25}}
HALF = {"step": {"after": 1, "factor": 0.5}}
COSINE = {"steps": 10, "decay": "cosine"}
RATES = [8.0, 8.0, 4.0, 4.0, 2.0, 0.8, 0.7, 0.1]


@pytest.mark.parametrize(
    ("valid", "schedule", "rates", "expected"),
    [
        ([], None, None, False),  # not trained
        ([100.0], None, None, True),  # the only epoch is the last
        ([100.0, 99.9], None, None, True),  # the best is the last, however small the step
        ([100.0, 90.0, 90.0], None, None, False),  # of equal epochs the first is the best
        ([100.0, 90.0, 91.0], None, None, False),
        ([80.0, 100.0, 98.9], None, None, True),  # not the best, and still falling by 1.1 %
        ([80.0, 100.0, 99.1], None, None, False),  # by 0.9 %
        # the last epoch may be the best where the rate decays to the end
        ([100.0, 90.0, 89.5], QUARTER, None, False),
        ([100.0, 90.0, 89.0], QUARTER, None, True),  # falling by 1.1 %
        ([100.0, 90.0, 89.5], {"step": {"after": 3, "factor": 0.25}}, None, True),  # three epochs: it never decays
        ([100.0, 90.0, 89.5], {"step": {"after": 2, "factor": 0.26}}, None, True),  # it ends above a quarter
        ([100.0, 90.0, 89.5], HALF, None, False),  # two decays: a quarter
        ([100.0, 90.0, 89.5], {"warmup": COSINE}, None, False),
        ([100.0, 90.0, 89.5], {"warmup": {**COSINE, "floor": 0.25}}, None, False),
        ([100.0, 90.0, 89.5], {"warmup": {**COSINE, "floor": 0.3}}, None, True),  # hardly a decay
        ([100.0, 90.0, 89.5], {"warmup": {"steps": 10}}, None, True),
        ([100.0, 90.0, 89.5], {"plateau": {"factor": 0.5}}, None, True),
        ([100.0], QUARTER, None, True),  # of one epoch nothing is known
        # six epochs with a tenth of the highest rate or more: the last two fell from 70 to 66, by 2.9 % an epoch
        ([100.0, 90.0, 80.0, 70.0, 68.0, 66.0, 65.9, 65.9], HALF, RATES, True),
        # by 0.7 % an epoch, although the whole training fell much
        ([100.0, 90.0, 80.0, 70.0, 69.5, 69.0, 68.9, 68.9], HALF, RATES, False),
        # after a warm-up five epochs, the second to the sixth, had a tenth: the last two fell from 80 to 76
        ([100.0, 90.0, 85.0, 80.0, 78.0, 76.0, 75.9, 75.9], {"warmup": COSINE}, [0.5, *[8.0] * 4, 4.0, 0.7, 0.1], True),
        ([100.0, *[99.9] * 7], HALF, [8.0, 0.7, *[0.1] * 6], True),  # frozen after one epoch
        ([100.0, 90.0, *[89.9] * 6], HALF, [8.0, 0.8, *[0.1] * 6], True),  # after two: 100 to 90 counts
    ],
)
def test_a_trial_is_not_converged_while_validation_falls(table_of, with_curve, valid, schedule, rates, expected):
    record = with_curve(table_of(2, 1)([100.0])[0], valid, lr=rates).records[1]
    if schedule is not None:
        epochs = 8.0 if rates else 3.0
        train = record.spec.train.model_copy(update={"schedule": Schedule(**schedule), "epochs": epochs})
        record = record.model_copy(update={"spec": record.spec.model_copy(update={"train": train})})
    assert not_converged(record) is expected


@pytest.mark.parametrize(("epoch", "expected"), [(2.5, True), (3.0, False)])
def test_a_fall_is_counted_by_epoch(table_of, with_curve, epoch, expected):
    # 0.8 % in half an epoch is 1.6 % in a whole one
    record = with_curve(table_of(2, 1)([100.0])[0], [80.0, 100.0, 99.2]).records[1]
    last = record.curve[-1].model_copy(update={"epoch": epoch})
    assert not_converged(record.model_copy(update={"curve": (*record.curve[:-1], last)})) is expected


def test_most_is_more_than_half_of_the_ok_trials(table_of, with_curve):
    row, falling = table_of(2, 4)([100.0] * 4)[0], [100.0, 50.0]
    assert unconverged_seeds(with_curve(row, falling, trials=2)) == [1, 2]
    assert [mostly_unconverged(with_curve(row, falling, trials=n)) for n in (0, 2, 3, 4)] == [False, False, True, True]
    assert mark(with_curve(row, falling, trials=1)) == "↓"


@pytest.mark.parametrize(
    ("ppl", "expected", "seeds"),
    [  # the unigram model of these records has 1100, and 0.95 of it is 1045
        ([1043.9, 1045.9], False, [2]),
        ([1044.1, 1046.1], True, [2]),
        ([1044.0, 1046.0], True, [2]),
        ([900.0, 1046.0, 900.0], False, [2]),
        ([math.nan, 1050.0, None], True, [2]),
        ([math.nan] * 3, False, []),
    ],
)
def test_a_row_whose_mean_is_near_the_unigram_is_collapsed(table_of, ppl, expected, seeds):
    (row,) = table_of(2, len(ppl))(ppl)
    assert (collapsed(row), collapsed_seeds(row)) == (expected, seeds)
    assert mark(row) == ("↓" if expected else "")
