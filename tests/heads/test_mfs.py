"""Multi-facet softmax: parameters by formula, the input block on visible values, its start, what it refuses."""

import math

import pytest
import torch
from handmade import count
from torch import nn

from harness.heads.mfs import MultiFacetSoftmax
from harness.protocols import HeadDims, Hidden

V, E = 11, 6
WIDTHS = (3, 4, 6)  # bottom to top


def make(*, layer_dims=WIDTHS, d_embed=E, vocab_size=V, **params):
    torch.manual_seed(0)
    dims = HeadDims(vocab_size=vocab_size, layer_dims=layer_dims, d_embed=d_embed)
    embedding = nn.Embedding(vocab_size, d_embed)
    return MultiFacetSoftmax(dims, embedding, **params), embedding


def parts(K, H, w, P, **params):
    """The head of (#S, layers, window, #P)."""
    return make(num_mixtures=K, num_input_layers=H, window=w, num_partitions=P, **params)[0].double()


def states(widths=WIDTHS):
    generator = torch.Generator().manual_seed(1)
    return Hidden(tuple(torch.randn(2, 4, width, dtype=torch.float64, generator=generator) for width in widths))


def assert_fills(tensor, bound):
    """Uniform on [-bound, bound]: nothing beyond, the largest near it, the standard deviation bound / sqrt(3)."""
    assert 0.98 * bound < tensor.abs().max().item() <= bound * (1 + 1e-6)
    assert tensor.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


@pytest.mark.parametrize("widths", [(6, 6, 6), (3, 4, 6), (3, 4, 5)])
@pytest.mark.parametrize(
    ("K", "H", "w", "P"),
    [(1, 1, 0, 1), (1, 3, 2, 1), (1, 1, 0, 4), (4, 1, 0, 1), (3, 3, 2, 1), (3, 1, 0, 4), (3, 3, 2, 4), (2, 1, 1, 3)],
)
def test_parameters_by_formula(widths, K, H, w, P):
    # HEADS.md section 5, with the layers' own widths: (w + 1) sum_l D_l in the place of I d; no gate for K = 1
    multi_input = H * (w + 1) > 1
    query = widths[-1] + E if multi_input else widths[-1]
    block = (w + 1) * sum(widths[-H:]) * E + E if multi_input else 0
    gate = query * K + K if K > 1 else 0
    assert count(parts(K, H, w, P, layer_dims=widths)) == V * E + block + (P + K - 1) * (query * E + E) + gate


def test_defaults_are_the_posters_mfs_and_options_add_a_bias_or_nothing():
    query, facets = 6 + E, 6
    expected = V * E + (3 * 13 * E + E) + facets * (query * E + E) + (query * 3 + 3)
    assert count(make()[0]) == expected
    assert count(make(bias=True)[0]) == expected + V
    assert count(make(norm_inputs=True)[0]) == expected
    assert count(make(tie_weights=True)[0]) == expected


LAYERS = Hidden(
    (
        torch.tensor([[[900.0], [900], [900]]]),  # below the two that are read
        torch.tensor([[[10.0, 11], [20, 21], [30, 31]]]),
        torch.tensor([[[1.0], [2], [3]]]),
    )
)


def test_block_is_the_layers_from_the_top_down_and_within_each_the_positions_backwards():
    head, _ = make(layer_dims=(1, 2, 1), num_input_layers=2, window=1)
    assert head.input_block(LAYERS)[0].tolist() == [
        # top t, top t - 1, second t, second t - 1; zeros before the segment
        [1, 0, 10, 11, 0, 0],
        [2, 1, 20, 21, 10, 11],
        [3, 2, 30, 31, 20, 21],
    ]


def test_a_window_longer_than_the_segment_reads_zeros():
    head, _ = make(layer_dims=(1, 2, 1), num_input_layers=1, window=4)
    assert head.input_block(LAYERS)[0].tolist() == [[1, 0, 0, 0, 0], [2, 1, 0, 0, 0], [3, 2, 1, 0, 0]]


def test_without_window_the_block_is_the_states_of_each_layer():
    head, _ = make(layer_dims=(1, 2, 1), num_input_layers=3, window=0)
    assert head.input_block(LAYERS)[0].tolist() == [[1, 10, 11, 900], [2, 20, 21, 900], [3, 30, 31, 900]]


def test_norm_inputs_normalises_the_layers_below_the_top_and_leaves_the_zeros():
    # (10, 11): mean 10.5, variance 1/4, torch's epsilon 1e-5; so every pair of the second layer
    unit = 0.5 / math.sqrt(0.25 + 1e-5)
    head, _ = make(layer_dims=(1, 2, 1), num_input_layers=2, window=1, norm_inputs=True)
    expected = torch.tensor(
        [[1, 0, -unit, unit, 0, 0], [2, 1, -unit, unit, -unit, unit], [3, 2, -unit, unit, -unit, unit]]
    )
    torch.testing.assert_close(head.input_block(LAYERS)[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("t", range(4))
def test_nothing_of_the_future_enters(t):
    head, hidden = make()[0].double(), states()
    later = Hidden(tuple(layer.clone() for layer in hidden.layers))
    for layer in later.layers:
        layer[:, t + 1 :] += 1
    before, after = head(hidden).log_probs(), head(later).log_probs()
    assert torch.equal(before[:, : t + 1], after[:, : t + 1])


def test_query_is_the_top_state_and_a_tanh_gelu_of_the_block():
    head, hidden = parts(2, 2, 1, 1), states()
    read = head.block(head.input_block(hidden))
    gelu = 0.5 * read * (1 + torch.tanh(math.sqrt(2 / math.pi) * (read + 0.044715 * read**3)))
    query = torch.cat([hidden.layers[-1], gelu], dim=-1)
    distribution = head(hidden)
    expected = torch.stack([facet(query) for facet in head.facets], dim=2).flatten(0, 1)
    torch.testing.assert_close(distribution.facets_NFE, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(
        distribution.log_prior_NK, head.prior(query).log_softmax(-1).flatten(0, 1), rtol=0, atol=1e-9
    )


def test_word_x_of_the_first_softmax_is_scored_by_facet_x_mod_p():
    head, hidden = parts(1, 1, 0, 4), states()
    facets = [facet(hidden.layers[-1]) for facet in head.facets]
    logits = torch.stack([facets[x % 4] @ head.output.weight[x] for x in range(V)], dim=-1)
    assert head.prior is None
    torch.testing.assert_close(head(hidden).log_probs(), logits.log_softmax(-1), rtol=0, atol=1e-12)


def test_only_the_first_softmax_is_partitioned():
    assert parts(3, 1, 0, 4)(states()).partitions == (4, 1, 1)
    assert parts(1, 1, 0, 1)(states()).partitions == (1,)


def test_the_output_matrix_starts_as_a_copy_of_the_embedding_or_is_it():
    head, embedding = make()
    assert torch.equal(head.output.weight, embedding.weight)
    assert head.output.weight.data_ptr() != embedding.weight.data_ptr()
    tied, embedding = make(tie_weights=True)
    assert tied.output.weight is embedding.weight


@pytest.mark.parametrize(("H", "w"), [(1, 0), (2, 1)])
def test_facets_start_as_the_top_state_with_noise_on_all_but_the_last(H, w):
    head, _ = make(layer_dims=(30, 40), d_embed=40, num_mixtures=2, num_partitions=2, num_input_layers=H, window=w)
    query = 40 if H == 1 else 80
    state = torch.eye(40, query)  # [identity | 0]
    *noisy, last = head.facets
    assert torch.equal(last.weight, state)
    noises = [(facet.weight - state).detach() for facet in noisy]
    for noise in noises:
        assert 4.9e-5 < noise.max().item() <= 5.01e-5  # 1e-4 (U(0, 1) - 0.5), on 1: rounded to 6e-8
        assert -5.01e-5 <= noise.min().item() < -4.9e-5
        assert abs(noise.mean().item()) < 5 * 1e-4 / math.sqrt(12 * noise.numel())
    assert not torch.equal(*noises)
    assert all(torch.equal(facet.bias, torch.zeros(40)) for facet in head.facets)


@pytest.mark.parametrize("draw", [0.0, 1.0])
def test_noise_spans_half_a_ten_thousandth_to_either_side(monkeypatch, draw):
    monkeypatch.setattr(torch, "rand_like", lambda tensor: torch.full_like(tensor, draw))
    first = make(num_mixtures=2, num_partitions=1, num_input_layers=1, window=0)[0].facets[0].weight
    torch.testing.assert_close(first.detach(), torch.eye(E) + 1e-4 * (draw - 0.5), rtol=0, atol=1e-7)


def test_a_single_facet_starts_exactly_as_the_top_state():
    assert torch.equal(parts(1, 1, 0, 1).facets[0].weight, torch.eye(E, dtype=torch.float64))


def test_facets_of_another_width_the_block_and_the_gate_keep_torchs_default():
    head, _ = make(layer_dims=(20, 30, 40), d_embed=60, vocab_size=7)
    for layer in (head.block, *head.facets, head.prior):
        assert_fills(layer.weight, 1 / math.sqrt(layer.in_features))
        assert 0 < layer.bias.abs().max() <= 1 / math.sqrt(layer.in_features)


def test_the_block_and_the_gate_keep_torchs_default_where_facets_start_as_the_state():
    head, _ = make(layer_dims=(40, 40, 40), d_embed=40)
    for layer in (head.block, head.prior):
        assert_fills(layer.weight, 1 / math.sqrt(layer.in_features))
        assert 0 < layer.bias.abs().max() <= 1 / math.sqrt(layer.in_features)


@pytest.mark.parametrize(("layers", "expected"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_three_layers_are_read_or_all_where_there_are_fewer(layers, expected):
    assert make(layer_dims=(E,) * layers)[0].num_input_layers == expected


def test_the_published_epsilon_is_added_to_the_probability_when_asked_for():
    expected = (make()[0].double()(states()).log_probs().exp() + 1e-3).log()
    found = make(compat={"log_epsilon": 1e-3})[0].double()(states()).log_probs()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"num_mixtures": 0}, "num_mixtures must be at least 1, got 0"),
        ({"num_input_layers": 0}, "num_input_layers must be at least 1, got 0"),
        ({"num_partitions": 0}, "num_partitions must be at least 1, got 0"),
        ({"num_partitions": -1}, "num_partitions must be at least 1, got -1"),
        ({"window": -1}, "window must be at least 0, got -1"),
        ({"num_input_layers": 4}, "num_input_layers: 4 are read, but the backbone has 3"),
        ({"num_partitions": V + 1}, "num_partitions must be at most V = 11, got 12"),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        make(**params)


@pytest.mark.parametrize(
    "params",
    [
        {"num_mixtures": 1},
        {"num_input_layers": 1},
        {"num_input_layers": 3},
        {"num_partitions": 1},
        {"num_partitions": V},
        {"window": 0},
    ],
)
def test_values_at_the_bounds_are_accepted(params):
    assert make(**params)[0].double()(states()).log_probs().shape == (2, 4, V)
