"""The Markov corpus: a proper chain, its entropy rate, and text that has it."""

import math

import pytest
import torch

from harness.corpora.corpus import SPLITS
from harness.corpora.synthetic import Markov


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
    torch.testing.assert_close(probabilities.sum(1), torch.ones(vocab_size, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_next_symbol_is_always_a_successor_so_the_chain_is_connected():
    successors, _ = Markov(vocab_size=30, num_tokens=20, branching=2).transitions()
    assert all((symbol + 1) % 30 in row for symbol, row in enumerate(successors.tolist()))


def test_facts_generate_nothing(monkeypatch):
    def refuse(*args):
        raise AssertionError("facts() generated something")

    for method in ("transitions", "_walk", "load", "entropy_rate", "mean_nll"):
        monkeypatch.setattr(Markov, method, refuse)
    facts = Markov(vocab_size=12, num_tokens=405, branching=3).facts()
    assert facts.vocab_size == 12
    assert facts.num_tokens == {"train": 405, "valid": 40, "test": 40}


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


def test_seed_decides_the_tokens():
    def tokens(seed: int) -> list[int]:
        return Markov(vocab_size=12, num_tokens=200, seed=seed).load(None).train.tolist()

    torch.manual_seed(1)
    first = tokens(5)
    torch.manual_seed(2)
    assert tokens(5) == first
    assert tokens(6) != first


def test_content_changes_with_every_parameter():
    base = {"vocab_size": 12, "num_tokens": 200, "seed": 0, "branching": 3}
    changed = [{**base, name: value + 1} for name, value in base.items()]
    assert len({Markov(**params).facts().content for params in [base, *changed]}) == 5
    assert Markov(**base).facts() == Markov(**base).facts()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"vocab_size": 1}, "vocab_size must be at least 2, got 1"),
        ({"num_tokens": 19}, "num_tokens must be at least 20, got 19"),
        ({"branching": 0}, "branching .* must be from 1 to vocab_size = 12, got 0"),
        ({"branching": 13}, "branching .* must be from 1 to vocab_size = 12, got 13"),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        Markov(**{"vocab_size": 12, "num_tokens": 200, "branching": 3, **params})
