"""Multi-facet softmax: the input block on visible values."""

import math

import pytest
import torch
from small_heads import E, make, states

from harness.protocols import Hidden

WIDTHS = (3, 4, 6)  # bottom to top


LAYERS = Hidden(
    (
        torch.tensor([[[900.0], [900], [900]]]),  # below the two that are read
        torch.tensor([[[10.0, 11], [20, 21], [30, 31]]]),
        torch.tensor([[[1.0], [2], [3]]]),
    )
)
UNIT = 0.5 / math.sqrt(0.25 + 1e-5)  # (10, 11): mean 10.5, variance 1/4, torch's epsilon 1e-5; so every pair


@pytest.mark.parametrize(
    ("layers", "window", "norm_inputs", "expected"),
    [  # top t, top t - 1, .., second t, second t - 1, ..; zeros before the segment
        (2, 1, False, [[1, 0, 10, 11, 0, 0], [2, 1, 20, 21, 10, 11], [3, 2, 30, 31, 20, 21]]),
        (1, 4, False, [[1, 0, 0, 0, 0], [2, 1, 0, 0, 0], [3, 2, 1, 0, 0]]),  # a window longer than the segment
        (3, 0, False, [[1, 10, 11, 900], [2, 20, 21, 900], [3, 30, 31, 900]]),
        (2, 1, True, [[1, 0, -UNIT, UNIT, 0, 0], *([t, t - 1, -UNIT, UNIT, -UNIT, UNIT] for t in (2, 3))]),
    ],
)
def test_block_is_the_layers_from_the_top_down_and_within_each_the_positions_backwards(
    layers, window, norm_inputs, expected
):
    given = {"num_input_layers": layers, "window": window, "norm_inputs": norm_inputs}
    found = make("mfs", layer_dims=(1, 2, 1), dtype=None, **given).input_block(LAYERS)[0]
    torch.testing.assert_close(found, torch.tensor(expected).float(), rtol=0, atol=1e-6 if norm_inputs else 0)


@pytest.mark.parametrize("t", range(4))
def test_nothing_of_the_future_enters(t):
    head, hidden = make("mfs", layer_dims=WIDTHS), states(2, 4, widths=WIDTHS)
    later = Hidden(tuple(layer.clone() for layer in hidden.layers))
    for layer in later.layers:
        layer[:, t + 1 :] += 1
    before, after = head(hidden).log_probs(), head(later).log_probs()
    assert torch.equal(before[:, : t + 1], after[:, : t + 1])


@pytest.mark.parametrize(("layers", "expected"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_three_layers_are_read_or_all_where_there_are_fewer(layers, expected):
    assert make("mfs", layer_dims=(E,) * layers).num_input_layers == expected
