"""SigSoftmax: two words by hand, at levels that matter."""

import math

import pytest
import torch
from small_heads import E, load, make
from torch import nn

from harness.protocols import HeadDims, Hidden, OutputLayer
from harness.registry import HEADS


@pytest.mark.parametrize("level", [0.0, -2.0, 3.0, -60.0, 60.0])
def test_two_words_have_the_probabilities_of_the_formula(level):
    # p(x) proportional to exp(z_x) sigmoid(z_x) (Kanai 2018): odds of e^2 far below 0, and of e far above
    head = load(make("sigsoftmax", vocab_size=2), output__weight=0.0, output__bias=[level + 1.0, level])
    found = head(Hidden((torch.ones(1, 1, E, dtype=torch.float64),))).log_probs()[0, 0, 0].exp().item()
    weights = [math.exp(z) / (1 + math.exp(-z)) for z in (level + 1, level)]
    assert found == pytest.approx(weights[0] / sum(weights), abs=1e-12)


def test_it_does_not_start_from_an_output_layer_with_a_soft_cap():
    def started(softcap):
        layer = OutputLayer(weight=torch.ones(5, E), softcap=softcap)
        dims = HeadDims(vocab_size=5, layer_dims=(E,), d_embed=E, pretrained=layer)
        return HEADS.get("sigsoftmax")(dims, nn.Embedding(5, E), start="pretrained")

    assert torch.equal(started(None).output.weight, torch.ones(5, E))
    with pytest.raises(
        ValueError, match=r"^start: the pretrained output layer has a soft cap, which this head does not have$"
    ):
        started(30.0)
