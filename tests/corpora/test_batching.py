"""Streams to segments: hand-made columns, carried state, and no target lost or counted twice."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.corpora.batching import (
    Segment,
    evaluation_blocks,
    evaluation_segments,
    strided_segments,
    training_segments,
)

SIZES = {"length": st.integers(2, 70), "batch_size": st.integers(1, 80), "seq_len": st.integers(1, 20)}


@settings(deadline=None, max_examples=200)
@given(**SIZES)
def test_training_segments_continue_each_other_in_every_column(length, batch_size, seq_len):
    segments = training_segments(torch.arange(length), batch_size=batch_size, seq_len=seq_len)
    column = length // batch_size
    assert sum(segment.targets.shape[1] for segment in segments) == max(column - 1, 0)
    assert all(segment.targets.shape[1] == seq_len for segment in segments[:-1])
    for segment in segments:
        assert torch.equal(segment.targets, segment.inputs + 1)
        assert segment.weight is None
    for before, after in pairwise(segments):
        assert torch.equal(after.inputs[:, 0], before.targets[:, -1])
    if segments:
        assert segments[0].inputs[:, 0].tolist() == [row * column for row in range(batch_size)]


@settings(deadline=None, max_examples=200)
@given(**SIZES, shift=st.integers(0, 300))
def test_with_any_shift_each_token_of_the_columns_is_read_once(length, batch_size, seq_len, shift):
    sizes = {"batch_size": batch_size, "seq_len": seq_len}
    still, moved = (list(training_segments(torch.arange(length), **sizes, shift=each)) for each in (0, shift))
    assert [segment.inputs.shape for segment in moved] == [segment.inputs.shape for segment in still]
    whole = batch_size * (length // batch_size)
    for before, after in zip(still, moved, strict=True):
        assert torch.equal(after.inputs, (before.inputs + shift) % whole)
        assert torch.equal(after.targets, (before.targets + shift) % whole)


@settings(deadline=None, max_examples=100)
@given(
    **SIZES, shift=st.integers(0, 300), batching=st.sampled_from(["stream", "blocks", "windows"]), shuffle=st.booleans()
)
def test_training_segments_say_where_their_targets_stand(length, batch_size, seq_len, shift, batching, shuffle):
    tokens_N = torch.randint(1000, (length,))
    segments = training_segments(tokens_N, batch_size=batch_size, seq_len=seq_len, batching=batching, shift=shift)
    if shuffle:
        segments = segments.shuffled(torch.Generator().manual_seed(length))
    for segment in segments:
        assert torch.equal(segment.targets, tokens_N[segment.place])


def test_a_segment_divides_by_rows_into_equal_parts_only():
    segment = Segment(torch.arange(8).view(4, 2), torch.arange(8).view(4, 2) + 1, place=torch.zeros(4, 2))
    first, second = segment.rows(2)
    assert (first.inputs.tolist(), second.targets.tolist()) == ([[0, 1], [2, 3]], [[5, 6], [7, 8]])
    assert (second.weight, second.place.shape) == (None, (2, 2))
    with pytest.raises(ValueError, match="a batch of 4 rows does not divide into 3 equal parts"):
        segment.rows(3)


@settings(deadline=None, max_examples=300)
@given(**SIZES)
def test_every_token_but_the_first_is_a_target_exactly_once_after_its_true_predecessor(length, batch_size, seq_len):
    tokens = torch.arange(100, 100 + length)  # each token tells its position
    segments = list(evaluation_segments(tokens, batch_size=batch_size, seq_len=seq_len))
    scored = []
    for segment in segments:
        assert segment.inputs.shape == segment.targets.shape == segment.weight.shape
        assert segment.weight.dtype == torch.float32
        assert segment.targets.shape[0] <= batch_size
        assert 1 <= segment.targets.shape[1] <= seq_len
        assert set(segment.weight.unique().tolist()) <= {0.0, 1.0}
        real = segment.weight == 1
        assert torch.equal(segment.inputs[real], segment.targets[real] - 1)
        assert torch.equal(segment.place[real], segment.targets[real] - 100)
        scored += segment.targets[real].tolist()
    assert sorted(scored) == list(range(101, 100 + length))
    assert all(segment.targets.shape[1] == seq_len for segment in segments[:-1])
    for before, after in pairwise(segments):
        assert torch.equal(after.inputs[:, 0], before.targets[:, -1])


# training: blocks, order, memory maps


def test_training_blocks_do_not_overlap_and_their_first_tokens_are_no_targets():
    # 17 tokens in blocks of 3: five and a tail of 2; two blocks a batch: two batches and a block left over
    segments = training_segments(torch.arange(17), batch_size=2, seq_len=3, batching="blocks")
    assert [segment.inputs.tolist() for segment in segments] == [[[0, 1], [3, 4]], [[6, 7], [9, 10]]]
    assert [segment.targets.tolist() for segment in segments] == [[[1, 2], [4, 5]], [[7, 8], [10, 11]]]
    assert [segment.weight for segment in segments] == [None, None]


def test_blocks_are_shuffled_one_by_one():
    segments = training_segments(torch.arange(17), batch_size=2, seq_len=3, batching="blocks")
    shuffled = segments.shuffled(torch.Generator().manual_seed(3))
    order = torch.randperm(5, generator=torch.Generator().manual_seed(3)).tolist()
    assert order != sorted(order)
    assert [segment.inputs[:, 0].tolist() for segment in shuffled] == [
        [3 * order[0], 3 * order[1]],
        [3 * order[2], 3 * order[3]],
    ]
    assert [segment.inputs[:, 0].tolist() for segment in segments] == [[0, 3], [6, 9]]


def test_windows_are_drawn_from_all_places_and_an_epoch_has_as_many_targets_as_the_split():
    # 23 tokens, 22 targets: three batches of 2 windows of 3 targets; a window may begin at 0 .. 19
    segments = training_segments(torch.arange(23), batch_size=2, seq_len=3, batching="windows")
    assert len(segments) == 3
    drawn = segments.shuffled(torch.Generator().manual_seed(3))
    places = torch.randint(20, (6,), generator=torch.Generator().manual_seed(3)).tolist()
    assert [segment.inputs.tolist() for segment in drawn] == [
        [[place, place + 1, place + 2] for place in places[at : at + 2]] for at in (0, 2, 4)
    ]
    assert [segment.targets.tolist() for segment in drawn] == [
        [[place + 1, place + 2, place + 3] for place in places[at : at + 2]] for at in (0, 2, 4)
    ]
    every = set()
    for seed in range(60):
        for segment in segments.shuffled(torch.Generator().manual_seed(seed)):
            every |= set(segment.inputs[:, 0].tolist())
    assert every == set(range(20))


def test_segments_of_a_stream_are_shuffled_whole():
    segments = training_segments(torch.arange(20), batch_size=2, seq_len=2)  # 9 targets a column: the last has 1
    shuffled = segments.shuffled(torch.Generator().manual_seed(3))
    order = torch.randperm(5, generator=torch.Generator().manual_seed(3)).tolist()
    assert [segment.inputs[:, 0].tolist() for segment in shuffled] == [[2 * at, 10 + 2 * at] for at in order]
    assert [segment.targets.shape[1] for segment in shuffled] == [1 if at == 4 else 2 for at in order]


def test_segments_are_a_sequence():
    segments = training_segments(torch.arange(20), batch_size=2, seq_len=2)
    assert len(segments) == 5
    assert segments[-1].inputs.tolist() == segments[4].inputs.tolist() == [[8], [18]]
    assert [segment.inputs[0, 0].item() for segment in segments[1:4:2]] == [2, 6]
    with pytest.raises(IndexError):
        segments[5]


@pytest.mark.parametrize("batching", ["stream", "blocks", "windows"])
def test_no_token_makes_no_segment(batching):
    assert len(training_segments(torch.zeros(0, dtype=torch.int64), batch_size=3, seq_len=2, batching=batching)) == 0


@pytest.mark.parametrize("batching", ["stream", "blocks", "windows"])
def test_a_memory_map_is_read_as_int64_segment_by_segment(batching, tmp_path):
    tokens = torch.randint(50_000, (1000,), generator=torch.Generator().manual_seed(1))
    tokens.int().numpy().tofile(tmp_path / "tokens")
    mapped = torch.from_file(str(tmp_path / "tokens"), shared=True, size=1000, dtype=torch.int32)
    sizes = {"batch_size": 4, "seq_len": 7, "batching": batching}
    for found, expected in zip(training_segments(mapped, **sizes), training_segments(tokens, **sizes), strict=True):
        assert found.inputs.dtype == found.targets.dtype == torch.int64
        assert torch.equal(found.inputs, expected.inputs)
        assert torch.equal(found.targets, expected.targets)


# Four terabytes, of which four bytes exist: whatever copies a whole split has no memory for it.
ENDLESS = torch.full((1,), 7, dtype=torch.int32).expand(10**12)


@pytest.mark.parametrize(("batching", "shift"), [("stream", 0), ("stream", 10**11), ("blocks", 0)])
def test_no_training_split_is_copied_whole(batching, shift):
    segments = training_segments(ENDLESS, batch_size=4, seq_len=1000, batching=batching, shift=shift)
    assert len(segments) == 250_000_000
    assert segments[123_456_789].inputs.shape == (4, 1000 if batching == "stream" else 999)


@pytest.mark.parametrize(
    ("cut", "width"),
    [(evaluation_segments, 1000), (partial(strided_segments, stride=100), 1000), (evaluation_blocks, 999)],
)
def test_no_evaluation_split_is_copied_whole(cut, width):
    first = next(cut(ENDLESS, batch_size=4, seq_len=1000))
    assert first.inputs.shape == first.targets.shape == (4, width)
    assert first.inputs.dtype == first.targets.dtype == torch.int64


# evaluation: windows and blocks, against loops


def scored(segments) -> list[tuple[list[int], int]]:
    """(context, target) of every target with weight, in order."""
    return [
        (inputs[: place + 1], target)
        for segment in segments
        for inputs, targets, weights in zip(*(part.tolist() for part in segment[:3]), strict=True)
        for place, (target, weight) in enumerate(zip(targets, weights, strict=True))
        if weight
    ]


def assert_placed(segments, tokens):
    """Each target with weight stands where its segment says."""
    for segment in segments:
        counts = segment.weight > 0
        assert torch.equal(torch.tensor(tokens)[segment.place[counts]], segment.targets[counts])


@settings(deadline=None, max_examples=300)
@given(**SIZES, data=st.data())
def test_windows_that_move_by_a_stride_score_every_token_but_the_first_once(length, batch_size, seq_len, data):
    stride = data.draw(st.integers(1, seq_len))
    tokens = list(range(100, 100 + length))
    expected, begin, done = [], 0, 0
    while done < length - 1:
        end = min(begin + seq_len, length - 1)
        expected += [(tokens[begin : place + 1], tokens[place + 1]) for place in range(done, end)]
        begin, done = begin + stride, end
    segments = list(strided_segments(torch.tensor(tokens), batch_size=batch_size, seq_len=seq_len, stride=stride))
    assert scored(segments) == expected
    assert_placed(segments, tokens)
    assert [target for _, target in expected] == tokens[1:]
    assert all(len(segment.inputs) == batch_size for segment in segments[:-1])


@settings(deadline=None, max_examples=300)
@given(**{**SIZES, "seq_len": st.integers(2, 20)})
def test_evaluation_blocks_score_all_but_their_first_tokens(length, batch_size, seq_len):
    tokens = list(range(100, 100 + length))
    expected = []
    for begin in range(0, length, seq_len):
        block = tokens[begin : begin + seq_len]
        expected += [(block[:place], block[place]) for place in range(1, len(block))]
    segments = list(evaluation_blocks(torch.tensor(tokens), batch_size=batch_size, seq_len=seq_len))
    assert scored(segments) == expected
    assert_placed(segments, tokens)
    assert all(len(segment.inputs) == batch_size for segment in segments[:-1])
