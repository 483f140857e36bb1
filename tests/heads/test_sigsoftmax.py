"""SigSoftmax: its start from an output layer with a soft cap."""

import pytest
import torch
from small_heads import E
from torch import nn

from harness.protocols import HeadDims, OutputLayer
from harness.registry import HEADS


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
