"""Where one trial's words cost less than another's, on scores written by hand."""

import math

import numpy as np
import pytest

from harness.errors import RecordError
from harness.records.sidecars import TokenScores
from harness.report.statistics import BLOCK
from harness.report.tokens import by_frequency, by_position, differences

NAN = math.nan


def scores(nll, count=None, offset=None) -> TokenScores:
    ones = [1] * len(nll)
    return TokenScores(
        nll=np.array(nll, dtype=np.float32),
        count=np.array(ones if count is None else count, dtype=np.int32),
        offset=np.array(ones if offset is None else offset, dtype=np.int32),
    )


def told(bands) -> list[tuple[str, int, float]]:
    return [(band.label, band.tokens, pytest.approx(band.mean)) for band in bands]


def test_bands_of_frequency_are_powers_of_ten():
    count = [0, 1, 9, 10, 99, 1000, 9999]
    a, b = scores([1.0] * 7, count), scores([2.0, 1, 2, 0, 1, 3, 4], count)
    expected = [("0", 1, 1.0), ("1-9", 2, 0.5), ("10-99", 2, -0.5), ("1000-9999", 2, 2.5)]
    assert told(by_frequency(a, b)) == expected


def test_bands_of_position_double():
    offset = [0, 1, 2, 3, 4, 7, 8, 16]
    a, b = scores([0.0] * 8, offset=offset), scores([1.0, 2, 3, 5, 6, 8, 9, 10], offset=offset)
    expected = [("0", 1, 1.0), ("1", 1, 2.0), ("2-3", 2, 4.0), ("4-7", 2, 7.0), ("8-15", 1, 9.0), ("16-31", 1, 10.0)]
    assert told(by_position(a, b)) == expected


def test_bands_hold_every_token_that_both_scored_and_no_other():
    count = [0, 5, 50, 500]
    a, b = scores([NAN, 1, 1, 1], count), scores([1, 2, NAN, 4], count)
    assert told(by_frequency(a, b)) == [("1-9", 1, 1.0), ("100-999", 1, 3.0)]
    assert differences(a, b).place.tolist() == [1, 3]


def test_the_error_is_of_blocks_that_weigh_by_their_tokens_in_the_band():
    # one band's tokens: 0 0 in the first block, 3 in the second; m = 1, rests -2 and 2: 2 / 1 (4 + 4) / 3^2
    count = np.zeros(BLOCK + 1, dtype=np.int32)
    count[[0, 1, BLOCK]] = 5
    nll = np.zeros(BLOCK + 1)
    nll[BLOCK] = 3
    seldom = by_frequency(scores(np.zeros(BLOCK + 1), count), scores(nll, count))[1]
    assert (seldom.tokens, seldom.mean, seldom.error) == (3, 1, pytest.approx(math.sqrt(2 * 8 / 9)))


def test_one_block_tells_no_error():
    (band,) = by_frequency(scores([0.0, 0]), scores([1.0, 2]))
    assert math.isnan(band.error)


def test_position_says_nothing_where_the_segments_differ():
    a, b = scores([0.0, 0], offset=[0, 1]), scores([1.0, 2], offset=[0, 0])
    assert by_position(a, b) == ()
    assert told(by_frequency(a, b)) == [("1-9", 2, 1.5)]


@pytest.mark.parametrize("count", [[1, 2, 3], [1, 3]])
def test_another_test_split_is_refused(count):
    with pytest.raises(RecordError, match="two test splits"):
        differences(scores([1.0, 1], [1, 2]), scores([1.0] * len(count), count))


def test_no_token_in_common_is_refused():
    with pytest.raises(RecordError, match="no token"):
        by_frequency(scores([1.0, NAN]), scores([NAN, 1.0]))
