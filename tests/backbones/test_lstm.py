"""The stacked LSTM against its cell equations, and what it refuses."""

import pytest
import torch

from backbones.lstm import StackedLSTM

V, D, L = 9, 5, 2


def test_layers_equal_the_cell_equations():
    torch.manual_seed(0)
    backbone = StackedLSTM(V, d_model=D, num_layers=L, dropout=0.0).double()
    tokens = torch.tensor([[1, 4, 8, 0]])
    hidden = backbone(tokens)
    inputs = [backbone.embedding.weight[token] for token in tokens[0]]
    for layer, lstm in enumerate(backbone.layers):
        h = c = torch.zeros(D, dtype=torch.float64)
        outputs = []
        for x in inputs:
            gates = lstm.weight_ih_l0 @ x + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ h + lstm.bias_hh_l0
            i, f, g, o = gates.split(D)  # torch's order of the four gates
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        torch.testing.assert_close(hidden.layers[layer][0], torch.stack(outputs), rtol=0, atol=1e-12)
        torch.testing.assert_close(hidden.state[layer][1][0, 0], c, rtol=0, atol=1e-12)
        inputs = outputs


def test_parameters_by_formula():
    # embedding V d; a layer 4 d (d + d) + 8 d (HEADS.md section 5)
    backbone = StackedLSTM(V, d_model=D, num_layers=L)
    assert sum(p.numel() for p in backbone.parameters()) == V * D + L * (4 * D * (D + D) + 8 * D)


@pytest.mark.parametrize("params", [{"d_model": 0}, {"num_layers": 0}, {"dropout": 1.0}, {"dropout": -0.1}])
def test_bad_parameters_are_refused(params):
    with pytest.raises(ValueError, match=next(iter(params))):
        StackedLSTM(V, **params)
