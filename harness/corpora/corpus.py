"""What a corpus is once loaded, and what a source of one must offer.

A source is built as Cls(*, <parameters>); its keyword-only parameters are its YAML schema. Parameters annotated `Path`
say where the text lies, not what it is: they are resolved against the suite file and left out of the trial's identity,
for which `CorpusFacts.content` stands.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusFacts:
    """What a plan needs to know of a corpus before anything is downloaded or generated.

    Args:
        vocab_size: V.
        num_tokens: tokens of each split, boundary tokens included; None where only tokenising the text would tell.
        content: SHA-256 of what the tokens are made from; part of the trial's identity.
        counting: the counting rule in words, printed under tables.
    """

    vocab_size: int
    num_tokens: dict[str, int] | None
    content: str
    counting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSize:
    """How much text a run of tokens stands for: what word, character and byte perplexity are divided by."""

    words: int
    characters: int
    bytes: int


class Codec(Protocol):
    """Text to the ids of a corpus and back."""

    def encode(self, text: str) -> list[int]:
        """Token ids. Raises CorpusError for what the vocabulary cannot express."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Token ids of the three splits.

    Shapes: train, valid, test: (N,) int64, or int32 where they are memory-mapped files or a hundred million characters;
        train may be empty in a corpus that is only evaluated on.
    Args:
        symbols: the V symbols in the order of their ids, or None where ids have no names.
        codec: text to ids and back, or None where ids have no text.
        test_size: the text of the test split that its scored tokens, all but the first, stand for, where a token is no
            word: each word and character whose last byte is in one of them. Then perplexity is counted by words,
            characters and bytes too. `<|endoftext|>` between documents is scored, and is no text.
        uncounted_id: a boundary token (seed 1's <sos>) that is scored but that standard counting does not divide by.
        source_test_nll: nats per scored test token under the process that made the text, where that is known.
    """

    vocab_size: int
    train: Tensor
    valid: Tensor
    test: Tensor
    symbols: tuple[str, ...] | None = None
    codec: Codec | None = None
    test_size: TextSize | None = None
    uncounted_id: int | None = None
    source_test_nll: float | None = None

    @property
    def token_counts(self) -> Tensor:
        """(V,) counts of the training split."""
        return torch.bincount(self.train, minlength=self.vocab_size)

    def to(self, device: torch.device) -> Self:
        """With the splits on a device, but for memory maps, of which segments are moved one by one."""
        splits = {name: getattr(self, name) for name in SPLITS}
        moved = {name: split if split.dtype == torch.int32 else split.to(device) for name, split in splits.items()}
        return replace(self, **moved)


@runtime_checkable
class CorpusSource(Protocol):
    """A named source of a corpus."""

    def facts(self) -> CorpusFacts:
        """Sizes and identity. Touches no network; raises CorpusError when a local file is missing or unfit."""
        ...

    def fetch(self, data: Path) -> None:
        """Make the files present and verified in the data folder, by download if need be."""
        ...

    def load(self, data: Path) -> Corpus:
        """Read what `fetch` made present."""
        ...
