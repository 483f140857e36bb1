"""Token streams to segments. B batch, T time; everything is batch-first.

A split may be a memory-mapped file far larger than memory: nothing here copies or moves a whole one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor


class Segment(NamedTuple):
    """Shapes: inputs, targets (B, T) int64; weight (B, T) float32, 0 where a target counts for nothing, or None; place
    (B, T) int64, where in the split the targets stand, or None. In evaluation neither is None.
    """

    inputs: Tensor
    targets: Tensor
    weight: Tensor | None = None
    place: Tensor | None = None

    def to(self, device: torch.device) -> "Segment":
        """On a device, ids as int64; itself where nothing is to be done."""
        weight = None if self.weight is None else self.weight.to(device)
        place = None if self.place is None else self.place.to(device)
        return Segment(self.inputs.to(device, torch.int64), self.targets.to(device, torch.int64), weight, place)


@dataclass(frozen=True, slots=True, eq=False)
class Segments(Sequence[Segment]):
    """The segments of an epoch, each cut when it is asked for; a slice is a list of them.

    Args:
        cut: some of the units that are shuffled -> the segment that they make.
        num_units: how many units there are.
        per_segment: how many of them a segment takes; those that fill none are dropped.
        order: of the units, (num_units,); None: as they are.
    """

    cut: Callable[[Tensor | slice], Segment]
    num_units: int
    per_segment: int = 1
    order: Tensor | None = None

    def __len__(self) -> int:
        return self.num_units // self.per_segment

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        begin = range(len(self))[index] * self.per_segment
        units = slice(begin, begin + self.per_segment)
        return self.cut(units if self.order is None else self.order[units])

    def shuffled(self, generator: torch.Generator) -> "Segments":
        """With the units in a random order: those that are dropped are others each time."""
        return replace(self, order=torch.randperm(self.num_units, generator=generator))


def training_segments(
    tokens_N: Tensor,
    *,
    batch_size: int,
    seq_len: int,
    batching: Literal["stream", "blocks"] = "stream",
    device: torch.device | None = None,
) -> Segments:
    """A training split cut into segments.

    'stream': into `batch_size` contiguous columns (what is left over at the end is dropped), then into segments of
    `seq_len` targets, the last one shorter. Segment s+1 continues segment s in every column. Segments are shuffled.

    'blocks': into blocks of `seq_len` tokens that do not overlap (the tail that fills none is dropped), the first token
    of each no target; `batch_size` blocks make a segment (those that fill none are dropped). Blocks are shuffled.

    Args:
        device: where segments are wanted; None: where the tokens are.
    """
    device = tokens_N.device if device is None else device
    if batching == "blocks":
        num_blocks = len(tokens_N) // seq_len
        rows_RL = tokens_N[: num_blocks * seq_len].view(num_blocks, seq_len)
        return Segments(lambda rows: _shifted(rows_RL[rows]).to(device), num_blocks, batch_size)
    length = len(tokens_N) // batch_size
    columns_BL = tokens_N[: batch_size * length].view(batch_size, length)

    def cut(units: Tensor | slice) -> Segment:
        begin = int(units.start if isinstance(units, slice) else units[0]) * seq_len
        return _shifted(columns_BL[:, begin : begin + seq_len + 1]).to(device)

    return Segments(cut, -(-max(length - 1, 0) // seq_len))


def evaluation_segments(tokens_N: Tensor, *, batch_size: int, seq_len: int) -> Iterator[Segment]:
    """Every token but the first is a target exactly once: no remainder is dropped, and a column's first target follows
    its true predecessor. The last columns are padded with weight 0.
    """
    num_targets = len(tokens_N) - 1
    batch_size = min(batch_size, num_targets)
    length = -(-num_targets // batch_size)
    columns_B = length * torch.arange(batch_size, device=tokens_N.device)
    for begin in range(0, length, seq_len):
        yield _window(tokens_N, columns_B + begin, min(seq_len, length - begin))


def strided_segments(tokens_N: Tensor, *, batch_size: int, seq_len: int, stride: int) -> Iterator[Segment]:
    """Windows of `seq_len` inputs that move by `stride` tokens, `batch_size` at a time: each has weight for its last
    `stride` targets only, the first window for all. So every token but the first counts exactly once, after at least
    seq_len - stride + 1 true predecessors, or all there are. The last window is padded with weight 0.
    """
    num_targets = len(tokens_N) - 1
    width = min(seq_len, num_targets)
    num_windows = 1 - (width - num_targets) // stride
    for begins_B in _begins(num_windows, stride, batch_size, tokens_N.device):
        yield _window(tokens_N, begins_B, width, stride)


def evaluation_blocks(tokens_N: Tensor, *, batch_size: int, seq_len: int) -> Iterator[Segment]:
    """Blocks of `seq_len` tokens that do not overlap, `batch_size` at a time, the first token of each no target. The
    last block may be shorter, and is padded with weight 0.
    """
    num_blocks = -(-(len(tokens_N) - 1) // seq_len)  # a last one of a single token has no target
    for begins_B in _begins(num_blocks, seq_len, batch_size, tokens_N.device):
        yield _window(tokens_N, begins_B, min(seq_len, len(tokens_N)) - 1)


def _begins(number: int, step: int, batch_size: int, device: torch.device) -> Iterator[Tensor]:
    """0, step, 2 step, ...: so many, a batch at a time."""
    for first in range(0, number, batch_size):
        yield step * torch.arange(first, min(first + batch_size, number), device=device)


def _shifted(tokens_BL: Tensor) -> Segment:
    return Segment(tokens_BL[:, :-1], tokens_BL[:, 1:])


def _window(tokens_N: Tensor, begins_B: Tensor, width: int, scored: int | None = None) -> Segment:
    """`width` inputs from each place on and the tokens after them. Weight 0: before the last `scored` of them, but for
    the window at the split's start, and beyond the split.
    """
    offset_T = torch.arange(width, device=tokens_N.device)
    place_BT = begins_B[:, None] + offset_T
    last = len(tokens_N) - 1
    counts_BT = place_BT < last
    if scored is not None:
        counts_BT &= (offset_T >= width - scored) | (begins_B[:, None] == 0)
    inputs_BT, targets_BT = (tokens_N[(place_BT + shift).clamp(max=last)].long() for shift in (0, 1))
    return Segment(inputs_BT, targets_BT, counts_BT.float(), place_BT + 1)
