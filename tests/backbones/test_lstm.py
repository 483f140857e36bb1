"""The stacked LSTM and GRU against their cell equations, their starts, and what they refuse."""

import pytest
import torch
from recurrent_cells import gru_cell, lstm_cell

from harness.backbones.bilstm import BidirectionalLSTM
from harness.backbones.lstm import StackedGRU, StackedLSTM

V, D, E, L = 9, 5, 3, 2
stacks = pytest.mark.parametrize("stack", [StackedLSTM, StackedGRU])


CELLS = {StackedLSTM: (lstm_cell, 2), StackedGRU: (gru_cell, 1)}


@stacks
@pytest.mark.parametrize("params", [{}, {"d_input": E}, {"num_layers": 1}], ids=str)
def test_layers_equal_the_cell_equations(stack, params):
    torch.manual_seed(0)
    backbone = stack(V, **{"d_model": D, "num_layers": L, "dropout": 0.0, **params}).double()
    tokens = torch.tensor([[1, 4, 8, 0]])
    hidden = backbone(tokens)
    cell, num_states = CELLS[stack]
    inputs = [backbone.embedding.weight[token] for token in tokens[0]]
    for layer, weights in enumerate(backbone.layers):
        state = ([torch.zeros((), dtype=torch.float64)] * D,) * num_states
        outputs = []
        for x in inputs:
            h, state = cell(weights, x, state)
            outputs.append(torch.stack(h))
        torch.testing.assert_close(hidden.layers[layer][0], torch.stack(outputs), rtol=0, atol=1e-12)
        carried = hidden.state[layer] if num_states > 1 else (hidden.state[layer],)
        assert len(carried) == num_states
        for found, expected in zip(carried, state, strict=True):
            torch.testing.assert_close(found[0, 0], torch.stack(expected), rtol=0, atol=1e-12)
        inputs = outputs


@stacks
def test_a_second_segment_continues_from_the_carried_state(stack):
    torch.manual_seed(0)
    backbone = stack(V, d_model=D, d_input=E, num_layers=L).double().eval()
    tokens = torch.tensor([[1, 4, 8, 0], [2, 2, 5, 7]])
    whole, first = backbone(tokens), backbone(tokens[:, :3])
    second = backbone(tokens[:, 3:], first.state)
    for layer in range(L):
        torch.testing.assert_close(second.layers[layer][:, 0], whole.layers[layer][:, 3], rtol=0, atol=1e-12)


@pytest.mark.parametrize("width", [D, E])
@pytest.mark.parametrize(("stack", "gates"), [(StackedLSTM, 4), (StackedGRU, 3)])
def test_parameters_by_formula(stack, gates, width):
    # embedding V e; the first layer of g gates: g d (e + d) + 2 g d, others g d (d + d) + 2 g d (HEADS.md section 5)
    backbone = stack(V, d_model=D, d_input=width, num_layers=L)
    layers = gates * D * (width + D) + gates * D * (D + D) + L * 2 * gates * D
    assert sum(p.numel() for p in backbone.parameters()) == V * width + layers
    assert (backbone.embedding.embedding_dim, backbone.layer_dims) == (width, (D, D))


def assert_fills(weight, bound):
    """Uniform in [-bound, bound]: within it, nearly up to it, and of its standard deviation."""
    assert 0.97 * bound < weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)


@stacks
def test_without_a_range_the_embedding_is_uniform_and_layers_start_as_in_torch(stack):
    torch.manual_seed(0)
    backbone = stack(400, d_model=100, d_input=50)
    assert_fills(backbone.embedding.weight, 0.1)
    for layer in backbone.layers:
        for parameter in layer.parameters():
            assert_fills(parameter, 0.1)  # 1 / sqrt(100)
    assert_fills(stack(400, d_model=25).layers[0].weight_hh_l0, 0.2)  # 1 / sqrt(25)


@pytest.mark.parametrize("stack", [StackedLSTM, StackedGRU, BidirectionalLSTM])
def test_a_range_is_that_of_all_weights_and_biases(stack):
    torch.manual_seed(0)
    for parameter in stack(400, d_model=100, d_input=50, init_range=0.03).parameters():
        assert_fills(parameter, 0.03)


@stacks
@pytest.mark.parametrize(("params", "embedding", "layers"), [({}, 0.9, 0.9), ({"embedding_dropout": 0.0}, 0.0, 0.9)])
def test_the_embedding_has_the_dropout_of_the_layers_or_its_own(stack, params, embedding, layers):
    torch.manual_seed(0)
    backbone = stack(V, d_model=40, dropout=0.9, **params)
    read = []
    backbone.layers[0].register_forward_pre_hook(lambda module, args: read.append(args[0]))
    hidden = backbone(torch.zeros(3, 50, dtype=torch.long))
    assert (read[0] == 0).double().mean().item() == pytest.approx(embedding, abs=0.02)
    for layer in hidden.layers:
        assert (layer == 0).double().mean().item() == pytest.approx(layers, abs=0.02)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"d_model": 0}, "d_model must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"d_input": 0}, "d_input must be at least 1, got 0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"dropout": -0.1}, r"dropout must be in \[0, 1\), got -0.1"),
        ({"embedding_dropout": 1.0}, r"embedding_dropout must be in \[0, 1\), got 1.0"),
        ({"init_range": 0.0}, "init_range must be more than 0, got 0.0"),
        ({"init_range": -0.1}, "init_range must be more than 0, got -0.1"),
    ],
)
def test_bad_parameters_are_refused(params, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        StackedLSTM(V, **params)
