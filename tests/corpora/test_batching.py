"""Streams to segments: hand-made columns, carried state, and no target lost or counted twice."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.corpora.batching import evaluation_segments, training_segments

SIZES = {
    "length": st.integers(2, 70),
    "batch_size": st.integers(1, 80),
    "seq_len": st.integers(1, 20),
}


def test_training_stream_is_cut_into_contiguous_columns_and_the_remainder_dropped():
    # 11 tokens in 2 columns of 5: 0..4 and 5..9; token 10 is dropped.
    first, second = training_segments(torch.arange(11), batch_size=2, seq_len=2)
    assert first.inputs.tolist() == [[0, 1], [5, 6]]
    assert first.targets.tolist() == [[1, 2], [6, 7]]
    assert second.inputs.tolist() == [[2, 3], [7, 8]]
    assert second.targets.tolist() == [[3, 4], [8, 9]]
    assert first.weight is second.weight is None


def test_last_training_segment_is_shorter():
    # Columns of 5 have 4 targets: segments of 3 and 1.
    segments = training_segments(torch.arange(10), batch_size=2, seq_len=3)
    assert [segment.targets.shape for segment in segments] == [(2, 3), (2, 1)]
    assert segments[-1].inputs.tolist() == [[3], [8]]
    assert segments[-1].targets.tolist() == [[4], [9]]


def test_columns_of_one_token_have_no_targets():
    assert list(training_segments(torch.arange(5), batch_size=3, seq_len=2)) == []


@settings(deadline=None, max_examples=200)
@given(**SIZES)
def test_training_segments_continue_each_other_in_every_column(length, batch_size, seq_len):
    segments = training_segments(torch.arange(length), batch_size=batch_size, seq_len=seq_len)
    column = length // batch_size
    assert sum(segment.targets.shape[1] for segment in segments) == max(column - 1, 0)
    assert all(segment.targets.shape[1] == seq_len for segment in segments[:-1])
    for segment in segments:
        assert torch.equal(segment.targets, segment.inputs + 1)
    for before, after in pairwise(segments):
        assert torch.equal(after.inputs[:, 0], before.targets[:, -1])
    if segments:
        assert segments[0].inputs[:, 0].tolist() == [row * column for row in range(batch_size)]


def test_evaluation_pads_the_last_column_with_weight_0():
    # 7 tokens, 6 targets, 4 columns of ceil(6 / 4) = 2: 8 places, of which the last 2 only pad.
    (segment,) = evaluation_segments(torch.arange(1, 8), batch_size=4, seq_len=5)
    assert segment.inputs[:3].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert segment.targets[:3].tolist() == [[2, 3], [4, 5], [6, 7]]
    assert segment.weight.tolist() == [[1, 1], [1, 1], [1, 1], [0, 0]]
    assert segment.weight.dtype == torch.float32


@settings(deadline=None, max_examples=300)
@given(**SIZES)
def test_every_token_but_the_first_is_a_target_exactly_once_after_its_true_predecessor(length, batch_size, seq_len):
    tokens = torch.arange(100, 100 + length)  # each token tells its position
    segments = list(evaluation_segments(tokens, batch_size=batch_size, seq_len=seq_len))
    scored = []
    for segment in segments:
        assert segment.inputs.shape == segment.targets.shape == segment.weight.shape
        assert segment.targets.shape[0] <= batch_size
        assert 1 <= segment.targets.shape[1] <= seq_len
        assert set(segment.weight.unique().tolist()) <= {0.0, 1.0}
        real = segment.weight == 1
        assert torch.equal(segment.inputs[real], segment.targets[real] - 1)
        scored += segment.targets[real].tolist()
    assert sorted(scored) == list(range(101, 100 + length))


@settings(deadline=None, max_examples=200)
@given(**SIZES)
def test_evaluation_segments_continue_each_other_in_every_column(length, batch_size, seq_len):
    segments = list(evaluation_segments(torch.arange(length), batch_size=batch_size, seq_len=seq_len))
    assert segments
    assert all(segment.targets.shape[1] == seq_len for segment in segments[:-1])
    for before, after in pairwise(segments):
        assert torch.equal(after.inputs[:, 0], before.targets[:, -1])


@pytest.mark.parametrize("batch_size", [1, 10, 1000])
def test_stream_of_two_tokens_has_one_target(batch_size):
    (segment,) = evaluation_segments(torch.tensor([5, 9]), batch_size=batch_size, seq_len=35)
    assert (segment.inputs.tolist(), segment.targets.tolist(), segment.weight.tolist()) == ([[5]], [[9]], [[1.0]])
