"""What fits into a time, by times that are given: hand calculations."""

import pytest

from harness.report.statistics import RANK_SEEDS
from harness.starters import budget
from harness.starters.budget import CHARACTERS, PRETRAINED, SUBWORDS, Machine, Measured, Size
from harness.trial.timing import ModelTime

SIZE = Size(least=1000, d_model=8, epochs=10, steps=1000)
ROW = ModelTime(train_ms=10, eval_ms=5, steps=100, valid_batches=10, test_batches=10)
MEASURED = Measured(bytes=1000, once=0.1, rows=[ROW, ROW])
MACHINE = Machine(workers=2, start=2.0)


def test_there_are_as_many_seeds_as_a_verdict_needs():
    assert budget.SEEDS == RANK_SEEDS


def test_the_minutes_of_a_part_are_those_of_all_trials_on_all_workers():
    # 2,000 bytes: 200 steps an epoch, 20 batches of each split; 10 epochs, since 5 of them have 1,000 steps.
    # A trial: 10 epochs (200 x 10 ms + 20 x 5 ms) and two tests, 2 x 20 x 5 ms = 21.2 s; with its start 23.2 s.
    # 2 rows of 5 + 6 trials, 2 at a time: 255.2 s. With 0.5 min of a run and 2 x 0.1 min for the tokens:
    found = budget.with_part(SIZE, MEASURED, 2000, MACHINE)
    assert (found.bytes, found.epochs) == (2000, 10)
    assert found.minutes == pytest.approx(255.2 / 60 + 0.7)


def test_a_short_text_is_read_more_often():
    # 500 bytes: 50 steps an epoch, and 1,000 are needed
    assert budget.with_part(SIZE, MEASURED, 500, MACHINE).epochs == 20


def test_all_of_the_text_is_used_if_it_fits():
    whole = budget.with_part(SIZE, MEASURED, 2000, MACHINE).minutes
    found = budget.fitting(SIZE, MEASURED, most=2000, minutes=whole + 0.01, machine=MACHINE)
    assert found.bytes == 2000


def test_the_part_fits_and_a_larger_one_does_not():
    found = budget.fitting(SIZE, MEASURED, most=100_000, minutes=10, machine=MACHINE)
    assert found.minutes <= 10
    larger = budget.with_part(SIZE, MEASURED, round(found.bytes / budget.SHORTER) + 1, MACHINE)
    assert larger.minutes > 10


def test_the_least_part_is_tried_and_nothing_below_it():
    least = budget.with_part(SIZE, MEASURED, SIZE.least, MACHINE).minutes
    # 1,010 bytes are too many, and 0.97 of them are below the least
    assert budget.fitting(SIZE, MEASURED, most=1010, minutes=least, machine=MACHINE).bytes == SIZE.least
    assert budget.fitting(SIZE, MEASURED, most=1010, minutes=least - 0.01, machine=MACHINE) is None


@pytest.mark.parametrize(
    ("size", "characters", "expected"),
    [
        (19_999, 60, []),
        (20_000, 60, [CHARACTERS]),
        (50_000, 60, [SUBWORDS[2], CHARACTERS]),
        (200_000, 60, [SUBWORDS[1], SUBWORDS[2], CHARACTERS]),
        (600_000, 60, [*SUBWORDS, CHARACTERS]),
    ],
)
def test_a_longer_text_suits_larger_models_too(size, characters, expected):
    assert list(budget.sizes(size=size, characters=characters, pretrained=False)) == expected


def test_a_text_of_many_different_characters_is_read_as_subwords_however_short():
    (only,) = budget.sizes(size=20_000, characters=3000, pretrained=False)
    assert (only.bpe, only.least) == (500, 20_000)


def test_a_pretrained_model_has_its_own_size():
    assert budget.sizes(size=10**9, characters=60, pretrained=True) == (PRETRAINED,)
