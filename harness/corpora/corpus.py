"""The types of a loaded corpus and of a source of a corpus.

A source is built as Cls(*, <parameters>); its keyword-only parameters are its YAML schema. Parameters of the type
`Path` are relative to the suite file and are not part of a trial's id. Instead the hash `CorpusFacts.content` is part
of it. It has three methods, which raise CorpusError:

    facts() -> CorpusFacts      sizes and identity, without network access
    fetch(data: Path)           makes sure that the verified files are in the data folder, by downloads if necessary
    load(data: Path) -> Corpus  reads the corpus; `fetch` must have been called before
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

from harness.corpora.pieces import TextTokenizer

SPLITS = ("train", "valid", "test")
Part = Literal["line", "paragraph", "document"]  # of a text
MANY_UNKNOWN = 0.01  # a share of <unk> in the test tokens above which plan and table have a note


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFacts:
    """What is in a split.

    Args:
        types: the number of different tokens.
        unseen_types: how many of them the training split does not have.
        unknown_share: the share of <unk> in its tokens; None if there is no <unk>.
        in_train: the share of its tokens that lie in a run of tokens that also stands in the training split
            (harness/corpora/overlap.py); None of the training split.
        in_valid: the same of a run that also stands in the validation split; None but of the test split.
    """

    tokens: int
    types: int
    unseen_types: int
    unknown_share: float | None
    in_train: float | None = None
    in_valid: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFacts:
    """What was read of a text that is not a published corpus before it is trained on. A plan shows it.

    Args:
        part: what it consists of: 'line', 'paragraph' or 'document'.
        number: how many of them it has.
        characters: None where its characters are read only when it is tokenised.
        splits: in words, how the splits are made or which files have them.
        of_splits: what is in each split; None for a tokenizer before the text is tokenised.
        lines_in_train: the share of the characters of the validation and the test split in whole
            lines that also stand in the training split; where the text is read only when it is tokenised, the
            share of its tokens in such documents, and before {}.
    """

    part: Part
    number: int
    characters: int | None
    splits: str
    of_splits: dict[str, SplitFacts] | None = None
    lines_in_train: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusFacts:
    """Facts that a plan needs before a corpus is downloaded or generated.

    Args:
        vocab_size: V.
        num_tokens: the number of tokens of each split, with boundary tokens; None if it is known only after tokenising.
        content: the SHA-256 of the source of the tokens; part of the trial's id.
        counting: the counting rule in words, printed under tables.
        in_train: the share of the tokens of a split that also stand in the training split, in runs
            (harness/corpora/overlap.py); {} where it is not known.
        text: what else was read of a text of one's own or of the hub; None of another corpus. No trial depends on it.
        tokenizer: of a model folder; None for other tokens.
    """

    vocab_size: int
    num_tokens: dict[str, int] | None
    content: str
    counting: str
    in_train: Mapping[str, float] = field(default_factory=dict)
    text: TextFacts | None = None
    tokenizer: TextTokenizer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSize:
    """The size of the text of some tokens: the denominators of word, character and byte perplexity."""

    words: int
    characters: int
    bytes: int


class Codec(Protocol):
    """Conversion between text and the ids of a corpus."""

    def encode(self, text: str) -> list[int]:
        """Return token ids. Raises CorpusError for text that the vocabulary cannot represent."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        ...

    def token_bytes(self) -> list[bytes]:
        """Optional. Return the bytes of the text of each token, in the order of the ids; b"" for a
        token without text. Those of <unk> and the end of a text do not count, and the last ids of a
        model's vocabulary may be left out.
        """
        ...


class States(Protocol):
    """The hidden states of a split under a frozen backbone (harness/pretrained/kept_states.py)."""

    def rows(self, places: Tensor) -> Tensor:
        """Return (..., width) float32, the states of the tokens at these places (...) of the split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Token ids of the three splits.

    Shapes: train, valid, test: (N,) int64; or int32 for memory-mapped files and texts of 10^8 characters. `train` may
        be empty in a corpus that is used for evaluation only.
    Args:
        symbols: the V symbols in the order of their ids, or None if ids have no names.
        codec: the conversion between text and ids, or None if ids have no text.
        test_size: the size of the text of all scored tokens of the test split (all except the first), if tokens are not
            words and give back every byte of it. A word or character counts if its last byte belongs to a scored token.
            Perplexity is then also given by word, character and byte. `<|endoftext|>` between documents is scored and
            has no text.
        test_bytes: (N,) int32, the number of bytes of the text of each token of the test split, so that every choice of
            scored tokens has an exact size; None for words, and for tokens of which it is not known or lost.
        unknown_id: the id of the token for what the vocabulary does not have, <unk>; None without
            one.
        end_of_text: the id of the token that a tokenizer puts between documents; None without one.
        uncounted_id: a boundary token (the <sos> of Benka et al., 2021) that is scored but that standard counting does
            not count in the denominator.
        source_test_nll: the mean nll, in nats, of the scored test tokens under the process that generated the text, if
            it is known.
        lines_in_train: the share of the characters of the validation and the test split in whole lines that also
            stand in the training split; {} where it is not known.
        states: the hidden states of each split under a frozen backbone, by the split's name; {} without one.
    """

    vocab_size: int
    train: Tensor
    valid: Tensor
    test: Tensor
    symbols: tuple[str, ...] | None = None
    codec: Codec | None = None
    test_size: TextSize | None = None
    test_bytes: Tensor | None = None
    unknown_id: int | None = None
    end_of_text: int | None = None
    uncounted_id: int | None = None
    source_test_nll: float | None = None
    lines_in_train: Mapping[str, float] = field(default_factory=dict)
    states: Mapping[str, States] = field(default_factory=dict)

    @property
    def token_counts(self) -> Tensor:
        """(V,) the token counts of the training split."""
        return torch.bincount(self.train, minlength=self.vocab_size)

    @property
    def token_bytes(self) -> tuple[bytes, ...] | None:
        """(V,) the bytes of each token's text, b"" for a token without text; None if they are not
        known.
        """
        if not hasattr(self.codec, "token_bytes"):  # codecs of plug-ins may not know it
            return None
        texts = [*self.codec.token_bytes(), *[b""] * self.vocab_size]
        for index in (self.unknown_id, self.end_of_text):
            if index is not None:
                texts[index] = b""
        return tuple(texts[: self.vocab_size])

    def to(self, device: torch.device) -> Self:
        """Return the corpus with its splits on a device. Memory-mapped splits are not moved; their segments are."""
        splits = {name: getattr(self, name) for name in SPLITS}
        moved = {name: split if split.dtype == torch.int32 else split.to(device) for name, split in splits.items()}
        return replace(self, **moved)
