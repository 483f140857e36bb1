"""Token streams to segments. B batch, T time; everything is batch-first."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Segment(NamedTuple):
    """Shapes: inputs, targets (B, T) int64; weight (B, T) float32, 0 where a target only pads, None when all count."""

    inputs: Tensor
    targets: Tensor
    weight: Tensor | None = None


def training_segments(tokens_N: Tensor, *, batch_size: int, seq_len: int) -> list[Segment]:
    """The stream cut into `batch_size` contiguous columns (what is left over at the end is dropped), then into segments
    of `seq_len` targets, the last one shorter. Segment s+1 continues segment s in every column.
    """
    columns = tokens_N[: len(tokens_N) // batch_size * batch_size].view(batch_size, -1)
    return [Segment(*pair) for pair in _cut(columns[:, :-1], columns[:, 1:], seq_len=seq_len)]


def evaluation_segments(tokens_N: Tensor, *, batch_size: int, seq_len: int) -> Iterator[Segment]:
    """Every token but the first is a target exactly once: no remainder is dropped, and a column's first target follows
    its true predecessor. The last column is padded with weight 0.
    """
    num_targets = len(tokens_N) - 1
    batch_size = min(batch_size, num_targets)
    length = -(-num_targets // batch_size)
    padded = torch.cat([tokens_N, tokens_N.new_zeros(batch_size * length - num_targets)])
    weight = (torch.arange(batch_size * length) < num_targets).to(torch.float32).view(batch_size, length)
    inputs, targets = padded[:-1].view(batch_size, length), padded[1:].view(batch_size, length)
    for segment in _cut(inputs, targets, weight.to(tokens_N.device), seq_len=seq_len):
        yield Segment(*segment)


def _cut(*tensors_BL: Tensor, seq_len: int) -> Iterator[tuple[Tensor, ...]]:
    for start in range(0, tensors_BL[0].shape[1], seq_len):
        yield tuple(tensor[:, start : start + seq_len] for tensor in tensors_BL)
