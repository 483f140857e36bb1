"""Corpora that are drawn: a chain of which the entropy is known, and sequences of one symbol."""

import math
from pathlib import Path

import pytest
import torch

from harness.corpora import synthetic
from harness.corpora.corpus import SPLITS
from harness.corpora.synthetic import Markov, SpamLang
from harness.errors import CorpusError


def dense(chain: Markov) -> torch.Tensor:
    """(V, V) transition matrix."""
    matrix = torch.zeros(chain.vocab_size, chain.vocab_size, dtype=torch.float64)
    return matrix.scatter_(1, *chain.transitions())


@pytest.mark.parametrize(("vocab_size", "branching"), [(2, 1), (2, 2), (12, 3), (50, 50)])
def test_rows_are_distributions_over_distinct_successors(vocab_size, branching):
    successors, probabilities = Markov(vocab_size=vocab_size, num_tokens=20, branching=branching).transitions()
    assert successors.shape == probabilities.shape == (vocab_size, branching)
    assert (successors >= 0).all()
    assert (successors < vocab_size).all()
    assert all(len(set(row)) == branching for row in successors.tolist())
    assert (probabilities > 0).all()
    assert all((symbol + 1) % vocab_size in row for symbol, row in enumerate(successors.tolist()))  # so it is connected
    torch.testing.assert_close(probabilities.sum(1), torch.ones(vocab_size, dtype=torch.float64), rtol=0, atol=1e-12)


def test_loaded_splits_have_the_sizes_of_the_facts_and_only_possible_transitions():
    chain = Markov(vocab_size=12, num_tokens=405, branching=3)
    corpus = chain.load(None)
    assert {name: len(getattr(corpus, name)) for name in SPLITS} == chain.facts().num_tokens
    walk = torch.cat([corpus.train, corpus.valid, corpus.test])  # one walk, cut in three
    assert (dense(chain)[walk[:-1], walk[1:]] > 0).all()
    assert corpus.vocab_size == 12
    assert corpus.source_test_nll == chain.mean_nll(corpus.test)


@pytest.mark.parametrize(("vocab_size", "branching", "seed"), [(2, 2, 0), (7, 2, 1), (20, 5, 2), (40, 40, 3)])
def test_entropy_rate_equals_that_of_the_dense_eigenvector(vocab_size, branching, seed):
    chain = Markov(vocab_size=vocab_size, num_tokens=20, seed=seed, branching=branching)
    matrix = dense(chain)
    values, vectors = torch.linalg.eig(matrix.T)
    stationary = vectors[:, (values - 1).abs().argmin()].real
    stationary = stationary / stationary.sum()
    expected = -(stationary @ torch.xlogy(matrix, matrix).sum(1))
    assert chain.entropy_rate() == pytest.approx(float(expected), rel=1e-9)


def test_long_walk_has_the_entropy_rate():
    # Standard error about 0.7 / sqrt(50,000) = 0.003 nats of 1.1: 2 % are 7 of it.
    chain = Markov(vocab_size=30, num_tokens=50_000, branching=4)
    assert chain.mean_nll(chain.load(None).train) == pytest.approx(chain.entropy_rate(), rel=0.02)


def test_mean_nll_is_the_mean_log_probability_of_the_transitions_taken():
    chain = Markov(vocab_size=6, num_tokens=20, branching=2)
    successors, probabilities = chain.transitions()
    second = int(successors[4, 1])
    third = int(successors[second, 0])
    expected = -(math.log(probabilities[4, 1]) + math.log(probabilities[second, 0])) / 2
    assert chain.mean_nll(torch.tensor([4, second, third])) == pytest.approx(expected, rel=1e-12)
    without_choice = Markov(vocab_size=6, num_tokens=20, branching=1)  # 0 is followed by 1 only
    assert (without_choice.entropy_rate(), without_choice.mean_nll(torch.tensor([0, 2]))) == (0, math.inf)


NOWHERE = Path("no/such/folder")


def test_a_sequence_is_one_symbol_and_symbols_are_uniform():
    corpus = SpamLang(vocab_size=5, num_sequences=5_000, repeats=3)
    facts, made = corpus.facts(), corpus.load(NOWHERE)
    assert facts.num_tokens == {"train": 15_000, "valid": 1_500, "test": 1_500}
    assert {name: len(getattr(made, name)) for name in facts.num_tokens} == facts.num_tokens
    rows = made.train.view(-1, 3)
    assert (rows == rows[:, :1]).all()
    counts = rows[:, 0].bincount(minlength=5)
    assert (counts - 1_000).abs().max() < 5 * math.sqrt(1_000 * 0.8)  # five standard deviations
    assert made.source_test_nll is None


MARKOV = {"vocab_size": 12, "num_tokens": 200, "seed": 0, "branching": 3}
SPAMLANG = {"vocab_size": 7, "num_sequences": 50, "repeats": 4, "seed": 0}


@pytest.mark.parametrize(("corpus", "params"), [(Markov, MARKOV), (SpamLang, SPAMLANG)])
def test_text_and_identity_depend_on_every_parameter_and_repeat(corpus, params):
    one, other = corpus(**params), corpus(**{**params, "seed": 1})
    text = one.load(NOWHERE).train
    torch.manual_seed(1)
    assert torch.equal(text, corpus(**params).load(NOWHERE).train)
    assert not torch.equal(text, other.load(NOWHERE).train)
    assert not torch.equal(one.load(NOWHERE).test, one.load(NOWHERE).valid)
    contents = {corpus(**{**params, name: value + 1}).facts().content for name, value in params.items()}
    assert len(contents | {one.facts().content}) == 5
    assert one.facts() == corpus(**params).facts()


@pytest.mark.parametrize(
    "source",
    [
        Markov(vocab_size=12, num_tokens=10**13, branching=3),
        Markov(vocab_size=10**7, num_tokens=20, branching=10**7),
        SpamLang(vocab_size=5, num_sequences=10, repeats=10**13),
    ],
    ids=["tokens", "successors", "repeats"],
)
def test_a_text_beyond_the_memory_is_refused_before_it_is_made(source):
    with pytest.raises(CorpusError, match=r"to make it takes .* GB of memory, and .* are free; ask for a shorter text"):
        source.load(NOWHERE)


def test_a_text_made_in_parts_is_that_made_at_once(monkeypatch):
    chain = Markov(vocab_size=12, num_tokens=2_000, branching=3)
    whole = chain.load(NOWHERE)
    monkeypatch.setattr(synthetic, "AT_ONCE", 7)
    parts = chain.load(NOWHERE)
    assert all(torch.equal(getattr(whole, split), getattr(parts, split)) for split in ("train", "valid", "test"))
    assert parts.source_test_nll == whole.source_test_nll
