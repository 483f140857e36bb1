"""Multi-facet softmax: the input block on visible values, its query, its partitions."""

import math

import pytest
import torch
from small_heads import E, V, make, states

from harness.protocols import Hidden

WIDTHS = (3, 4, 6)  # bottom to top


def parts(K, H, w, P):
    """The head of (#S, layers, window, #P)."""
    given = {"num_mixtures": K, "num_input_layers": H, "window": w, "num_partitions": P}
    return make("mfs", layer_dims=WIDTHS, **given)


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


def test_query_is_the_top_state_and_a_tanh_gelu_of_the_block():
    head, hidden = parts(2, 2, 1, 1), states(2, 4, widths=WIDTHS)
    read = head.block(head.input_block(hidden))
    gelu = 0.5 * read * (1 + torch.tanh(math.sqrt(2 / math.pi) * (read + 0.044715 * read**3)))
    query = torch.cat([hidden.layers[-1], gelu], dim=-1)
    distribution, prior = head(hidden), head.prior(query).log_softmax(-1).flatten(0, 1)
    expected = torch.stack([facet(query) for facet in head.facets], dim=2).flatten(0, 1)
    torch.testing.assert_close(distribution.facets_NFE, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(distribution.log_prior_NK, prior, rtol=0, atol=1e-9)


def test_word_x_of_the_first_softmax_is_scored_by_facet_x_mod_p_and_only_the_first_is_partitioned():
    head, hidden = parts(1, 1, 0, 4), states(widths=WIDTHS)
    facets = [facet(hidden.layers[-1]) for facet in head.facets]
    logits = torch.stack([facets[x % 4] @ head.output.weight[x] for x in range(V)], dim=-1)
    assert head.prior is None
    torch.testing.assert_close(head(hidden).log_probs(), logits.log_softmax(-1), rtol=0, atol=1e-12)
    assert parts(3, 1, 0, 4)(hidden).partitions == (4, 1, 1)
    assert parts(1, 1, 0, 1)(hidden).partitions == (1,)


@pytest.mark.parametrize(("layers", "expected"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_three_layers_are_read_or_all_where_there_are_fewer(layers, expected):
    assert make("mfs", layer_dims=(E,) * layers).num_input_layers == expected
