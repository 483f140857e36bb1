"""Cut token streams into segments. B batch, T time; the batch is always the first dimension.

A split may be a memory-mapped file that is larger than memory, so no function here copies or moves a whole split.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from harness.corpora.corpus import States


class Segment(NamedTuple):
    """Inputs and targets of one step.

    Shapes: inputs, targets (B, T) int64; weight (B, T) float32, 0 for targets that do not count; None in training;
        place (B, T) int64, the positions of the targets in the split; None for a text that is of no split;
        states (B, T, sum of the layers' widths) float32, the hidden states of the inputs under a frozen backbone, side
        by side; None where the backbone computes them.
    """

    inputs: Tensor
    targets: Tensor
    weight: Tensor | None = None
    place: Tensor | None = None
    states: Tensor | None = None

    def to(self, device: torch.device) -> "Segment":
        """Return the segment on a device, with ids as int64."""
        moved = self.each(lambda tensor: tensor.to(device))
        return moved._replace(inputs=moved.inputs.long(), targets=moved.targets.long())

    def each(self, change: Callable[[Tensor], Tensor]) -> "Segment":
        """Return the segment with each of its tensors changed."""
        return Segment(*(None if tensor is None else change(tensor) for tensor in self))

    def rows(self, parts: int) -> list["Segment"]:
        """Return equal parts of the segment, by rows. Raises ValueError when it cannot be divided so."""
        if len(self.inputs) % parts:
            raise ValueError(f"a batch of {len(self.inputs)} rows does not divide into {parts} equal parts")
        size = len(self.inputs) // parts
        return [self.each(lambda tensor, n=n: tensor[n * size : (n + 1) * size]) for n in range(parts)]

    def reversed(self) -> "Segment":
        """Return the same text from its end to its start, for a model that reads from right to left: the targets, the
        last one first, are the inputs, and the inputs are the targets. A weight belongs to the pair of an input and its
        target.
        """
        weight = None if self.weight is None else self.weight.flip(1)
        place = None if self.place is None else self.place.flip(1) - 1
        return Segment(self.targets.flip(1), self.inputs.flip(1), weight, place)


@dataclass(frozen=True, slots=True, eq=False)
class Segments(Sequence[Segment]):
    """The segments of an epoch. Each is cut when it is read; a slice gives a list of segments.

    A unit is what is shuffled: a segment of a stream, a block, or a window, which is known by its first token.

    Args:
        cut: makes a segment from some units.
        num_units: the number of units.
        per_segment: the number of units of a segment. Units that do not fill a segment are dropped.
        order: (num_units,) the order of the units; None for their own order.
        places: how many tokens a window may begin at; 0: units are no windows.
    """

    cut: Callable[[Tensor | slice], Segment]
    num_units: int
    per_segment: int = 1
    order: Tensor | None = None
    places: int = 0

    def __len__(self) -> int:
        return self.num_units // self.per_segment

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        begin = range(len(self))[index] * self.per_segment
        units = slice(begin, begin + self.per_segment)
        return self.cut(units if self.order is None else self.order[units])

    def shuffled(self, generator: torch.Generator) -> "Segments":
        """Return the segments with the units in a random order. The dropped units are different ones each time. Windows
        are drawn with replacement from all places.
        """
        if self.places:
            return replace(self, order=torch.randint(self.places, (self.num_units,), generator=generator))
        return replace(self, order=torch.randperm(self.num_units, generator=generator))


def training_segments(
    tokens_N: Tensor,
    *,
    batch_size: int,
    seq_len: int,
    batching: Literal["stream", "blocks", "windows"] = "stream",
    device: torch.device | None = None,
    shift: int = 0,
    states: States | None = None,
    lengths: Sequence[int] | None = None,
) -> Segments:
    """Cut a training split into segments.

    'stream': the split is cut into `batch_size` contiguous columns, and tokens that remain at the end are dropped. The
    columns are cut into segments of `seq_len` targets; the last one may be shorter. Segment s+1 continues segment s in
    every column. `shuffled` shuffles segments. With `shift` the first column begins at that token, and the last one
    ends before it: after the end of the split it goes on with the beginning.

    'blocks': the split is cut into blocks of `seq_len` tokens without overlap, and tokens that remain at the end are
    dropped. The first token of each block is not a target. A segment has `batch_size` blocks, and blocks that do not
    fill a segment are dropped. `shuffled` shuffles blocks.

    'windows': a segment has `batch_size` windows of `seq_len` targets, which `shuffled` draws at random from all places
    of the split. An epoch has as many segments as fit into the split: floor((N - 1) / (B T)), of N tokens.

    Args:
        device: the device of the segments; None for the device of the tokens.
        shift: of a stream, in tokens.
        states: of the split under a frozen backbone, for blocks.
        lengths: of the segments of a stream, in their order, in place of seq_len; the last ones are cut at its end.
    """
    device = tokens_N.device if device is None else device
    arange = partial(torch.arange, device=tokens_N.device)
    length = len(tokens_N) // batch_size
    first_B1 = shift + length * arange(batch_size)[:, None]

    number = -(-max(length - 1, 0) // seq_len)
    ends = range(0, seq_len * (number + 1), seq_len) if lengths is None else [0, *accumulate(lengths)]

    def of_stream(units: Tensor | slice) -> Segment:
        index = int(units.start if isinstance(units, slice) else units[0])
        place_BL = first_B1 + arange(ends[index], min(ends[index + 1] + 1, length))
        return _read(tokens_N, place_BL % (batch_size * length)).to(device)

    def of_blocks(units: Tensor | slice) -> Segment:
        blocks_B = arange(units.start, units.stop) if isinstance(units, slice) else units.to(tokens_N.device)
        segment = _read(tokens_N, seq_len * blocks_B[:, None] + arange(seq_len))
        return with_states(segment, states).to(device)

    def of_windows(units: Tensor | slice) -> Segment:
        drawn = not isinstance(units, slice)
        first_B = units.to(tokens_N.device) if drawn else seq_len * arange(units.start, units.stop)
        return _read(tokens_N, first_B[:, None] + arange(seq_len + 1)).to(device)

    if batching == "windows":
        windows = max(0, len(tokens_N) - 1) // (batch_size * seq_len) * batch_size
        return Segments(of_windows, windows, batch_size, places=max(0, len(tokens_N) - seq_len))
    if batching == "blocks":
        return Segments(of_blocks, len(tokens_N) // seq_len, batch_size)
    return Segments(of_stream, bisect_left(ends[:-1], length - 1))


def evaluation_segments(tokens_N: Tensor, *, batch_size: int, seq_len: int) -> Iterator[Segment]:
    """Yield segments in which every token of the split except the first is a target exactly once.

    No token is dropped, and the first target of a column follows the token before it in the split. The last columns are
    padded with weight 0.
    """
    num_targets = len(tokens_N) - 1
    batch_size = min(batch_size, num_targets)
    length = -(-num_targets // batch_size)
    columns_B = length * torch.arange(batch_size, device=tokens_N.device)
    for begin in range(0, length, seq_len):
        yield _window(tokens_N, columns_B + begin, min(seq_len, length - begin))


def strided_segments(tokens_N: Tensor, *, batch_size: int, seq_len: int, stride: int) -> Iterator[Segment]:
    """Yield windows of `seq_len` inputs that move by `stride` tokens, `batch_size` windows at a time.

    Only the last `stride` targets of a window have weight; in the first window all have. So every token except the
    first counts exactly once. Its context has at least seq_len - stride + 1 tokens, or all tokens before it. The last
    window is padded with weight 0.
    """
    num_targets = len(tokens_N) - 1
    width = min(seq_len, num_targets)
    num_windows = 1 - (width - num_targets) // stride
    for begins_B in _begins(num_windows, stride, batch_size, tokens_N.device):
        yield _window(tokens_N, begins_B, width, stride)


def evaluation_blocks(tokens_N: Tensor, *, batch_size: int, seq_len: int) -> Iterator[Segment]:
    """Yield blocks of `seq_len` tokens without overlap, `batch_size` blocks at a time.

    The first token of each block is not a target. The last block may be shorter and is padded with weight 0.
    """
    num_blocks = -(-(len(tokens_N) - 1) // seq_len)  # a last block of one token has no target
    for begins_B in _begins(num_blocks, seq_len, batch_size, tokens_N.device):
        yield _window(tokens_N, begins_B, min(seq_len, len(tokens_N)) - 1)


def with_states(segment: Segment, states: States | None) -> Segment:
    """Return a segment with the kept states of its inputs, if there are any. An input stands before its target."""
    return segment if states is None else segment._replace(states=states.rows(segment.place - 1))


def _begins(number: int, step: int, batch_size: int, device: torch.device) -> Iterator[Tensor]:
    """Yield `number` positions 0, step, 2 step, ..., one batch at a time."""
    for first in range(0, number, batch_size):
        yield step * torch.arange(first, min(first + batch_size, number), device=device)


def _read(tokens_N: Tensor, place_BL: Tensor) -> Segment:
    """Return the tokens at these places, each the target of the one before it in its row."""
    tokens_BL = tokens_N[place_BL]
    return Segment(tokens_BL[:, :-1], tokens_BL[:, 1:], place=place_BL[:, 1:])


def _window(tokens_N: Tensor, begins_B: Tensor, width: int, scored: int | None = None) -> Segment:
    """Return `width` inputs from each of the positions `begins_B` on, and the tokens after them as targets.

    Targets after the end of the split have weight 0. With `scored`, so have all targets except the last `scored` ones,
    but not in the window at the start of the split.
    """
    offset_T = torch.arange(width, device=tokens_N.device)
    place_BT = begins_B[:, None] + offset_T
    last = len(tokens_N) - 1
    counts_BT = place_BT < last
    if scored is not None:
        counts_BT &= (offset_T >= width - scored) | (begins_B[:, None] == 0)
    inputs_BT, targets_BT = (tokens_N[(place_BT + shift).clamp(max=last)].long() for shift in (0, 1))
    return Segment(inputs_BT, targets_BT, counts_BT.float(), place_BT + 1)
