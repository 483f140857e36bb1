"""Statistics of a token at the edges: ties, certain, impossible and equal words. Any others: test_lean_property.py."""

import math

import pytest
import torch

from harness.distributions import Logits, Mixture


def test_logits_with_an_impossible_word_have_statistics_too():
    found = Logits(torch.tensor([[[0.0, 0.0, -math.inf]]])).statistics()
    assert [found.entropy.item(), found.top_logp.item()] == pytest.approx([math.log(2), -math.log(2)], abs=1e-6)
    assert (found.top.item(), found.log_normaliser.item()) == (0, pytest.approx(math.log(2), abs=1e-6))


@pytest.mark.parametrize("num_words", [1, 3, 4, 5, 8, 11])
def test_of_equally_probable_words_the_first_is_the_top(num_words):
    values = torch.randint(3, (40, num_words), generator=torch.Generator().manual_seed(num_words)).float()  # many ties
    found = Mixture(values[None, :, None], None, torch.eye(num_words)).statistics()
    assert found.top[0].tolist() == [row.index(max(row)) for row in values.tolist()]


@pytest.mark.parametrize("num_mixtures", [1, 2])
def test_certain_and_impossible_words(num_mixtures):
    # logits 0, -2e4 and -inf: one word is certain, its entropy is 0
    bias = torch.tensor([-2e4, 0.0, -math.inf])
    prior = None if num_mixtures == 1 else torch.zeros(1, 1, 2).log_softmax(-1)
    found = Mixture(torch.zeros(1, 1, num_mixtures, 2), prior, torch.zeros(3, 2), bias).statistics()
    assert found.top.tolist() == [[1]]
    assert [found.entropy.item(), found.top_logp.item()] == pytest.approx([0, 0], abs=1e-6)
    assert found.log_normaliser.abs().max() == 0
