"""A synthetic language that is trivial for a backbone: one symbol, repeated."""

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from harness.corpora.corpus import Corpus, CorpusFacts
from harness.random_streams import stream_seed
from harness.registry import CORPORA

_GENERATOR_VERSION = "spamlang-1"  # part of the identity: change it when the same parameters give other tokens
HELDOUT = 10  # the training split has so many times the sequences of each other split


@CORPORA.register("spamlang")
class SpamLang:
    """Sequences of one symbol: s s s ... s, `repeats` times, with s drawn uniformly from V symbols.

    Cut into its sequences (`batching: blocks` and `seq_len` equal to `repeats`), the language has perplexity 1: the
    first token of a block is not scored, and all others are equal to it. A softmax with E >= 2 can say it: with the
    rows of the output matrix on a circle, a large enough multiple of row s puts all probability on s. So a perplexity
    above 1 is a matter of training.

    Args:
        vocab_size: V.
        num_sequences: of the training split. The validation and test splits have a tenth of it each.
        repeats: the length of a sequence.
        seed: of the text; it does not depend on the trial's seed.
    Raises: ValueError when vocab_size < 2, num_sequences < 10 or repeats < 2.
    Source: Godey and Artzi (2026), arXiv:2603.10145, who find that models stop learning it as V grows. Known to us at
        second hand, so the sizes are ours.
    """

    def __init__(self, *, vocab_size: int, num_sequences: int, repeats: int = 16, seed: int = 0):
        least = {"vocab_size": (vocab_size, 2), "num_sequences": (num_sequences, HELDOUT), "repeats": (repeats, 2)}
        for name, (given, needed) in least.items():
            if given < needed:
                raise ValueError(f"{name} must be at least {needed}, got {given}")
        self.vocab_size, self.num_sequences, self.repeats, self.seed = vocab_size, num_sequences, repeats, seed

    def facts(self) -> CorpusFacts:
        """Facts from the parameters only; no text is generated."""
        identity = f"{_GENERATOR_VERSION}/{self.vocab_size}/{self.num_sequences}/{self.repeats}/{self.seed}"
        return CorpusFacts(
            vocab_size=self.vocab_size,
            num_tokens={name: self.repeats * number for name, number in self._sequences().items()},
            content=hashlib.sha256(identity.encode()).hexdigest(),
            counting=f"symbols, each repeated {self.repeats} times",
        )

    def fetch(self, data: Path) -> None:
        """Nothing to fetch."""

    def load(self, data: Path) -> Corpus:
        """Draw the symbols of all sequences."""
        return Corpus(vocab_size=self.vocab_size, **{name: self._split(name) for name in self._sequences()})

    def _sequences(self) -> dict[str, int]:
        heldout = self.num_sequences // HELDOUT
        return {"train": self.num_sequences, "valid": heldout, "test": heldout}

    def _split(self, name: str) -> Tensor:
        generator = torch.Generator().manual_seed(stream_seed(self.seed, "spamlang", name))
        symbols = torch.randint(self.vocab_size, (self._sequences()[name],), generator=generator)
        return symbols.repeat_interleave(self.repeats)
