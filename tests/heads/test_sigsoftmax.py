"""SigSoftmax: two words by hand, and that the logits' level matters."""

import math

import pytest
import torch
from small_heads import E, load, make

from harness.protocols import Hidden


def two_words(level):
    """P(first word) of two, its logit `level` + 1, the other's `level`."""
    head = load(make("sigsoftmax", vocab_size=2), output__weight=0.0, output__bias=[level + 1.0, level])
    return head(Hidden((torch.ones(1, 1, E, dtype=torch.float64),))).log_probs()[0, 0, 0].exp().item()


@pytest.mark.parametrize("level", [0.0, -2.0, 3.0])
def test_two_words_have_the_probabilities_of_the_formula(level):
    # p(x) proportional to exp(z_x) sigmoid(z_x) (Kanai 2018)
    weights = [math.exp(z) / (1 + math.exp(-z)) for z in (level + 1, level)]
    assert two_words(level) == pytest.approx(weights[0] / sum(weights), abs=1e-12)


def test_a_shift_of_all_logits_matters():
    # z far below 0: sigmoid(z) is exp(z), the odds are e^2; far above: e, as under softmax
    assert two_words(-60.0) == pytest.approx(math.e**2 / (1 + math.e**2), abs=1e-12)
    assert two_words(60.0) == pytest.approx(math.e / (1 + math.e), abs=1e-12)
