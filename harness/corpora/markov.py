"""A synthetic corpus for which the best possible perplexity is known."""

import hashlib
import math
from bisect import bisect_right
from pathlib import Path

import torch
from torch import Tensor

from harness.corpora.corpus import Corpus, CorpusFacts
from harness.random_streams import stream_seed
from harness.registry import CORPORA

_GENERATOR_VERSION = "markov-1"  # part of the identity: change it when the same parameters give other tokens


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
        if num_tokens < 20:
            raise ValueError(f"num_tokens must be at least 20, got {num_tokens}")
        if not 1 <= branching <= vocab_size:
            raise ValueError(f"branching (default 8) must be from 1 to vocab_size = {vocab_size}, got {branching}")
        self.vocab_size, self.num_tokens, self.seed, self.branching = vocab_size, num_tokens, seed, branching

    def facts(self) -> CorpusFacts:
        """Facts from the parameters only; no text is generated."""
        identity = f"{_GENERATOR_VERSION}/{self.vocab_size}/{self.num_tokens}/{self.seed}/{self.branching}"
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
        previous, following = tokens_N[:-1], tokens_N[1:]
        taken = successors[previous] == following[:, None]
        return float(-(probabilities[previous] * taken).sum(1).log().mean())

    def _walk(self, length: int) -> Tensor:
        successors, probabilities = self.transitions()
        rows = successors.tolist()
        cumulated = probabilities.cumsum(1).tolist()
        generator = torch.Generator().manual_seed(stream_seed(self.seed, "markov", "walk"))
        draws = torch.rand(length + 1, generator=generator, dtype=torch.float64).tolist()
        symbol, walk = math.floor(draws[0] * self.vocab_size), []
        for draw in draws[1:]:
            walk.append(symbol)
            choice = min(bisect_right(cumulated[symbol], draw), self.branching - 1)
            symbol = rows[symbol][choice]
        return torch.tensor(walk, dtype=torch.int64)
