"""nGPT: how its scales start, and how fast they are learned."""

import math

import pytest
import torch
from small_heads import E, V, make, states

from harness.protocols import Hidden


@pytest.mark.parametrize(("given", "shape"), [({}, (V,)), ({"scale": "one"}, (1,))])
@pytest.mark.parametrize("start", [1.0, 12.0])
def test_a_scale_starts_as_given_and_is_learned_as_a_parameter_of_the_size_of_an_embedding(given, shape, start):
    head = make("ngpt", scale_start=start, **given)
    assert head.scale.shape == shape
    assert head.scale.tolist() == pytest.approx([1 / math.sqrt(E)] * len(head.scale), rel=1e-6)
    h = states().layers[-1]
    cosines = torch.cosine_similarity(h[:, :, None], head.output.weight[None, None], dim=-1)
    torch.testing.assert_close(head(Hidden((h,))).log_probs(), (start * cosines).log_softmax(-1), rtol=0, atol=1e-6)
