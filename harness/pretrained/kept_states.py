"""Hidden states of a text in files: written once, shard by shard, and read row by row.

A row is the state of one token: the layers that heads read, side by side. A shard is a safetensors file with the tensor
`states` (rows, width). Its header names what the states are of, and the SHA-256 of the tensor.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from harness.machine.files import write_atomically

SHARD_BYTES = 2**26
NAME, HEADER = "states", "sha256 of"  # one key: the library writes several in any order


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The files of the states of one split, whether they are there or not.

    Args:
        folder: where they are.
        split: the first part of their names.
        of: what decides the states but for rounding, which the device and threads of who computed them decide; it is
            in each header.
        rows: the number of tokens of the split.
        block: tokens of a block. A shard has whole blocks, but for the last one of the split.
        width: of a row.
        dtype: of the numbers in the files.
    """

    folder: Path
    split: str
    of: str
    rows: int
    block: int
    width: int
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """The size of all tensors."""
        return self.rows * self.width * self.dtype.itemsize

    @property
    def rows_of_one(self) -> int:
        """Rows of every shard but the last."""
        blocks = SHARD_BYTES // (self.block * self.width * self.dtype.itemsize)
        return max(1, blocks) * self.block

    def ranges(self) -> Iterator[range]:
        """The rows of each shard."""
        for begin in range(0, self.rows, self.rows_of_one):
            yield range(begin, min(begin + self.rows_of_one, self.rows))

    def place(self, rows: range) -> Path:
        """The file of some rows."""
        return self.folder / f"{self.split}-{rows.start // self.rows_of_one:05}.safetensors"

    def write(self, rows: range, states: Tensor) -> None:
        """Write a shard. Raises StorageError."""
        states = states.contiguous()
        write_atomically(self.place(rows), save({NAME: states}, {HEADER: self._header(states)}))

    def read(self, rows: range) -> Tensor | None:
        """(rows, width) a shard, mapped from its file; None unless it is there and is what its header says."""
        try:
            with safe_open(self.place(rows), framework="pt") as file:
                header, states = (file.metadata() or {}).get(HEADER), file.get_tensor(NAME)
        except (OSError, SafetensorError):
            return None
        fits = tuple(states.shape) == (len(rows), self.width) and states.dtype == self.dtype
        return states if fits and header == self._header(states) else None

    def _header(self, states: Tensor) -> str:
        digest = hashlib.sha256(states.view(torch.uint8).numpy()).hexdigest()
        return f"{digest} {self.of}"

    def missing(self) -> list[range]:
        """The rows of the shards that have to be written."""
        return [rows for rows in self.ranges() if self.read(rows) is None]


@dataclass(frozen=True, slots=True)
class KeptStates:
    """The states of a split, in the shards that `of` has read."""

    shards: list[Tensor]
    rows_of_one: int

    @classmethod
    def of(cls, shards: Shards) -> "KeptStates | None":
        """The states of a split; None when a shard is missing or damaged."""
        found = [shards.read(rows) for rows in shards.ranges()]
        return None if any(each is None for each in found) else cls(found, shards.rows_of_one)

    def rows(self, places: Tensor) -> Tensor:
        """(..., width) float32 the states of the tokens at these places (...) of the split. Places after its end stand
        for its last token.
        """
        flat_N = places.flatten().cpu().clamp(0, sum(map(len, self.shards)) - 1)
        found = torch.empty(len(flat_N), self.shards[0].shape[1])
        shard_N = flat_N // self.rows_of_one
        for number in shard_N.unique().tolist():
            chosen_N = shard_N == number
            found[chosen_N] = self.shards[number][flat_N[chosen_N] - number * self.rows_of_one].float()
        return found.unflatten(0, places.shape)
