"""Synthetic corpora, whose best possible perplexity is known: a Markov chain, and sequences of one symbol."""

import hashlib
import math
from bisect import bisect_right
from pathlib import Path

import torch
from torch import Tensor

from harness.corpora.corpus import Corpus, CorpusFacts
from harness.corpora.pieces import MAX_VOCAB
from harness.errors import CorpusError
from harness.machine.limits import memory
from harness.random_streams import stream_seed
from harness.registry import CORPORA

# Parts of the identities: change one when the same parameters give other tokens.
_MARKOV_VERSION = "markov-1"
_SPAMLANG_VERSION = "spamlang-1"
BYTES_OF_SUCCESSOR, BYTES_OF_TOKEN = 100, 20  # of memory, while a text is made
AT_ONCE = 2**16  # tokens in one call, in which no signal is answered
HELDOUT = 10  # the training split has so many times the sequences of each other split


@CORPORA.register("markov")
class Markov:
    """A first-order Markov chain with sparse transitions: each of V symbols has `branching` possible successors.

    The successors of s are s + 1 (mod V), so that every symbol can be reached, and others that are drawn without
    replacement. Their probabilities are drawn from Dirichlet(1, ..., 1).
    Entropy rate: sum_s mu_s H(p(. | s)) with mu the stationary distribution.

    Args:
        vocab_size: V.
        num_tokens: the number of tokens of the training split. The validation and test splits have a tenth of it each.
        seed: the seed of the chain and of the text; it does not depend on the trial's seed.
        branching: the number of successors of each symbol.
    Raises: ValueError when vocab_size < 2, num_tokens < 20, or branching is not in 1 .. vocab_size.
    """

    def __init__(self, *, vocab_size: int, num_tokens: int, seed: int = 0, branching: int = 8):
        if vocab_size < 2:
            raise ValueError(f"vocab_size must be at least 2, got {vocab_size}")
        if vocab_size > MAX_VOCAB:
            raise ValueError(f"vocab_size must be at most {MAX_VOCAB:,}, got {vocab_size:,}")
        if num_tokens < 20:
            raise ValueError(f"num_tokens must be at least 20, got {num_tokens}")
        if not 1 <= branching <= vocab_size:
            raise ValueError(f"branching (default 8) must be from 1 to vocab_size = {vocab_size}, got {branching}")
        self.vocab_size, self.num_tokens, self.seed, self.branching = vocab_size, num_tokens, seed, branching

    def facts(self) -> CorpusFacts:
        """Facts from the parameters only; no text is generated."""
        identity = f"{_MARKOV_VERSION}/{self.vocab_size}/{self.num_tokens}/{self.seed}/{self.branching}"
        heldout = self.num_tokens // 10
        return CorpusFacts(
            vocab_size=self.vocab_size,
            num_tokens={"train": self.num_tokens, "valid": heldout, "test": heldout},
            content=hashlib.sha256(identity.encode()).hexdigest(),
            counting="symbols of a Markov chain",
        )

    def fetch(self, data: Path) -> None:
        """Nothing to fetch."""

    def load(self, data: Path) -> Corpus:
        """Generate one walk of the chain and cut it into the three splits."""
        heldout = self.num_tokens // 10
        numbers = BYTES_OF_SUCCESSOR * self.vocab_size * self.branching
        refuse_beyond_memory("markov", numbers + BYTES_OF_TOKEN * self.num_tokens)
        tokens = self._walk(self.num_tokens + 2 * heldout)
        train, valid, test = tokens.split([self.num_tokens, heldout, heldout])
        return Corpus(
            vocab_size=self.vocab_size, train=train, valid=valid, test=test, source_test_nll=self.mean_nll(test)
        )

    def transitions(self) -> tuple[Tensor, Tensor]:
        """Return (V, S) the successors, int64, ascending, and (V, S) their probabilities, float64; S = branching."""
        generator = torch.Generator().manual_seed(stream_seed(self.seed, "markov", "transitions"))
        rows = []
        for symbol in range(self.vocab_size):
            following = (symbol + 1) % self.vocab_size
            shuffled = torch.randperm(self.vocab_size, generator=generator)
            others = shuffled[shuffled != following][: self.branching - 1]
            rows.append(torch.cat([torch.tensor([following]), others]).sort().values)
        uniform = torch.rand(self.vocab_size, self.branching, generator=generator, dtype=torch.float64)
        weights = -torch.log1p(-uniform)  # exponential variables, which after normalisation follow Dirichlet(1, ..., 1)
        return torch.stack(rows), weights / weights.sum(1, keepdim=True)

    def entropy_rate(self) -> float:
        """Return the entropy rate of the chain in nats per symbol."""
        successors, probabilities = self.transitions()
        stationary = torch.full((self.vocab_size,), 1 / self.vocab_size, dtype=torch.float64)
        for _ in range(10_000):
            flow = torch.zeros_like(stationary).index_add_(
                0, successors.flatten(), (stationary[:, None] * probabilities).flatten()
            )
            settled = (flow - stationary).abs().sum() < 1e-13
            stationary = (flow + stationary) / 2  # the lazy chain has the same stationary state and is not periodic
            if settled:
                break
        return float(-(stationary[:, None] * torch.xlogy(probabilities, probabilities)).sum())

    def mean_nll(self, tokens_N: Tensor) -> float:
        """Return the mean nll, in nats, of all tokens except the first under the chain's own probabilities."""
        successors, probabilities = self.transitions()
        logs = []
        for previous, following in zip(tokens_N[:-1].split(AT_ONCE), tokens_N[1:].split(AT_ONCE), strict=True):
            taken = successors[previous] == following[:, None]
            logs.append((probabilities[previous] * taken).sum(1).log())
        return float(-torch.cat(logs).mean())

    def _walk(self, length: int) -> Tensor:
        successors, probabilities = self.transitions()
        rows = successors.tolist()
        cumulated = probabilities.cumsum(1).tolist()
        generator = torch.Generator().manual_seed(stream_seed(self.seed, "markov", "walk"))

        def draws(number: int) -> list[float]:
            return torch.rand(number, generator=generator, dtype=torch.float64).tolist()

        symbol, parts = math.floor(draws(1)[0] * self.vocab_size), []
        for begin in range(0, length, AT_ONCE):
            walk = []
            for draw in draws(min(AT_ONCE, length - begin)):
                walk.append(symbol)
                choice = min(bisect_right(cumulated[symbol], draw), self.branching - 1)
                symbol = rows[symbol][choice]
            parts.append(torch.tensor(walk, dtype=torch.int64))
        return torch.cat(parts)


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
        if vocab_size > MAX_VOCAB:
            raise ValueError(f"vocab_size must be at most {MAX_VOCAB:,}, got {vocab_size:,}")
        for name, (given, needed) in least.items():
            if given < needed:
                raise ValueError(f"{name} must be at least {needed}, got {given}")
        self.vocab_size, self.num_sequences, self.repeats, self.seed = vocab_size, num_sequences, repeats, seed

    def facts(self) -> CorpusFacts:
        """Facts from the parameters only; no text is generated."""
        identity = f"{_SPAMLANG_VERSION}/{self.vocab_size}/{self.num_sequences}/{self.repeats}/{self.seed}"
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
        refuse_beyond_memory("spamlang", BYTES_OF_TOKEN * self.num_sequences * self.repeats)
        return Corpus(vocab_size=self.vocab_size, **{name: self._split(name) for name in self._sequences()})

    def _sequences(self) -> dict[str, int]:
        heldout = self.num_sequences // HELDOUT
        return {"train": self.num_sequences, "valid": heldout, "test": heldout}

    def _split(self, name: str) -> Tensor:
        generator = torch.Generator().manual_seed(stream_seed(self.seed, "spamlang", name))
        symbols = torch.randint(self.vocab_size, (self._sequences()[name],), generator=generator)
        return symbols.repeat_interleave(self.repeats)


def refuse_beyond_memory(corpus: str, needed: int) -> None:
    """Raise CorpusError if a text needs more bytes of memory than are free."""
    free = memory().free
    if needed > free:
        raise CorpusError(
            f"{corpus}: to make it takes {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free; "
            "ask for a shorter text, or for fewer symbols"
        )
