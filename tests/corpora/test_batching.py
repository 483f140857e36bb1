"""Streams to segments: positions by loops from the definitions, and no target lost or counted twice."""

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

LENGTH, SIZES = st.integers(2, 70), {"batch_size": st.integers(1, 80), "seq_len": st.integers(1, 20)}
BATCHINGS = ["stream", "blocks", "windows"]


def places_of_training(N, batching, shift, seed, *, batch_size: int, seq_len: int) -> list[list[list[int]]]:
    """The positions of the tokens of each row of each segment; with a seed, of shuffled ones."""
    B, T = batch_size, seq_len
    generator = None if seed is None else torch.Generator().manual_seed(seed)

    def order(number):
        return range(number) if seed is None else torch.randperm(number, generator=generator).tolist()

    if batching == "stream":
        column = N // B
        segments = []
        for s in order(-(-max(column - 1, 0) // T)):
            ends = range(s * T, min(s * T + T, column - 1) + 1)
            segments.append([[(shift + row * column + at) % (B * column) for at in ends] for row in range(B)])
        return segments
    if batching == "blocks":
        rows = [list(range(T * block, T * block + T)) for block in order(N // T)]
    else:
        number = (N - 1) // (B * T) * B
        begins = range(0, number * T, T)
        if seed is not None and number:
            begins = torch.randint(N - T, (number,), generator=generator).tolist()
        rows = [list(range(begin, begin + T + 1)) for begin in begins]
    return [rows[at : at + B] for at in range(0, len(rows) - B + 1, B)]


@settings(deadline=None, max_examples=300)
@given(
    length=LENGTH, sizes=st.fixed_dictionaries(SIZES), batching=st.sampled_from(BATCHINGS), shift=st.integers(0, 300),
    seed=st.none() | st.integers(0, 9),
)  # fmt: skip
def test_training_segments_have_the_tokens_of_their_definition(length, sizes, batching, shift, seed):
    tokens_N = torch.randint(1000, (length,), generator=torch.Generator().manual_seed(length))
    segments = training_segments(tokens_N, batching=batching, shift=shift, **sizes)
    if seed is not None:
        segments = segments.shuffled(torch.Generator().manual_seed(seed))
    expected = places_of_training(length, batching, shift, seed, **sizes)
    assert len(segments) == len(expected)
    for segment, rows in zip(segments, expected, strict=True):
        place_BL = torch.tensor(rows)
        assert torch.equal(segment.inputs, tokens_N[place_BL[:, :-1]])
        assert torch.equal(segment.targets, tokens_N[place_BL[:, 1:]])
        assert torch.equal(segment.place, place_BL[:, 1:])
        assert segment.weight is None


def test_segments_are_a_sequence():
    segments = training_segments(torch.arange(20), batch_size=2, seq_len=2)
    assert segments[-1].inputs.tolist() == segments[4].inputs.tolist() == [[8], [18]]
    assert [segment.inputs[0, 0].item() for segment in segments[1:4:2]] == [2, 6]
    with pytest.raises(IndexError):
        segments[5]


def test_a_segment_divides_by_rows_into_equal_parts_only():
    segment = Segment(torch.arange(8).view(4, 2), torch.arange(8).view(4, 2) + 1, place=torch.zeros(4, 2))
    first, second = segment.rows(2)
    assert (first.inputs.tolist(), second.targets.tolist()) == ([[0, 1], [2, 3]], [[5, 6], [7, 8]])
    assert (second.weight, second.place.shape) == (None, (2, 2))
    with pytest.raises(ValueError, match="a batch of 4 rows does not divide into 3 equal parts"):
        segment.rows(3)


# Four terabytes, of which four bytes exist: whatever copies a whole split has no memory for it.
ENDLESS = torch.full((1,), 7, dtype=torch.int32).expand(10**12)


@pytest.mark.parametrize(("batching", "shift"), [("stream", 0), ("stream", 10**11), ("blocks", 0), ("windows", 0)])
def test_no_training_split_is_copied_whole(batching, shift):
    segments = training_segments(ENDLESS, batch_size=4, seq_len=1000, batching=batching, shift=shift)
    assert abs(len(segments) - 250_000_000) <= 1
    assert segments[123_456_789].inputs.shape == (4, 999 if batching == "blocks" else 1000)
    assert segments[0].targets.dtype == segments[0].inputs.dtype == torch.int64


@pytest.mark.parametrize(
    ("cut", "width"),
    [(evaluation_segments, 1000), (partial(strided_segments, stride=100), 1000), (evaluation_blocks, 999)],
)
def test_no_evaluation_split_is_copied_whole(cut, width):
    first = next(cut(ENDLESS, batch_size=4, seq_len=1000))
    assert first.inputs.shape == first.targets.shape == (4, width)
    assert first.inputs.dtype == first.targets.dtype == torch.int64


# evaluation: each token tells its position


@settings(deadline=None, max_examples=300)
@given(length=LENGTH, **SIZES)
def test_every_token_but_the_first_is_a_target_exactly_once_after_its_true_predecessor(length, batch_size, seq_len):
    tokens = torch.arange(100, 100 + length)
    segments = list(evaluation_segments(tokens, batch_size=batch_size, seq_len=seq_len))
    found = []
    for segment in segments:
        assert segment.inputs.shape == segment.targets.shape == segment.weight.shape
        assert segment.weight.dtype == torch.float32
        assert segment.targets.shape[0] <= batch_size
        real = segment.weight == 1
        assert torch.equal(segment.inputs[real], segment.targets[real] - 1)
        assert torch.equal(segment.place[real], segment.targets[real] - 100)
        assert not segment.weight[~real].any()
        found += segment.targets[real].tolist()
    assert sorted(found) == list(range(101, 100 + length))
    assert all(segment.targets.shape[1] == seq_len for segment in segments[:-1])
    for before, after in pairwise(segments):
        assert torch.equal(after.inputs[:, 0], before.targets[:, -1])


def scored(segments) -> list[tuple[list[int], int, int]]:
    """(context, target, its place) of every target with weight, in order."""
    return [
        (inputs[: at + 1], target, place)
        for segment in segments
        for inputs, targets, weights, places in zip(*(part.tolist() for part in segment[:4]), strict=True)
        for at, (target, weight, place) in enumerate(zip(targets, weights, places, strict=True))
        if weight
    ]


@settings(deadline=None, max_examples=300)
@given(length=LENGTH, **{**SIZES, "seq_len": st.integers(2, 20)}, data=st.data(), blocks=st.booleans())
def test_windows_score_every_token_but_the_first_and_blocks_all_but_their_first(
    length, batch_size, seq_len, data, blocks
):
    tokens, expected, stride = list(range(100, 100 + length)), [], data.draw(st.integers(1, seq_len))
    if blocks:
        for begin in range(0, length, seq_len):
            block = tokens[begin : begin + seq_len]
            expected += [(block[:at], block[at], begin + at) for at in range(1, len(block))]
    else:
        begin = done = 0
        while done < length - 1:
            end = min(begin + seq_len, length - 1)
            expected += [(tokens[begin : at + 1], tokens[at + 1], at + 1) for at in range(done, end)]
            begin, done = begin + stride, end
    cut = evaluation_blocks if blocks else partial(strided_segments, stride=stride)
    segments = list(cut(torch.tensor(tokens), batch_size=batch_size, seq_len=seq_len))
    assert scored(segments) == expected
    assert all(len(segment.inputs) == batch_size for segment in segments[:-1])


def test_windows_are_drawn_from_all_places():
    segments, every = training_segments(torch.arange(23), batch_size=2, seq_len=3, batching="windows"), set()
    for seed in range(60):
        for segment in segments.shuffled(torch.Generator().manual_seed(seed)):
            every |= set(segment.inputs[:, 0].tolist())
    assert every == set(range(20))
