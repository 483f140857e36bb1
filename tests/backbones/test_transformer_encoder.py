"""The Transformer encoder against formulas written out here, its initialisation, and what it refuses."""

import math

import pytest
import torch

from harness.backbones.transformer_encoder import TransformerEncoder, sinusoidal_positions
from harness.dropout import dropout

V, D, NUM_HEADS, FF = 50, 8, 2, 12


def make(**params):
    torch.manual_seed(0)
    settings = {"d_model": D, "num_layers": 2, "num_heads": NUM_HEADS, "d_ff": FF, "dropout": 0.0, "layer_dropout": 0.0}
    return TransformerEncoder(V, **{**settings, **params})


def layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * weight + bias


def encoder_layer(layer, x, attended=None, kept=(1.0, 1.0, 1.0)):
    """Post-norm: x = norm(x + attention(x)); x = norm(x + W2 relu(W1 x)), each position seeing itself and before.

    attended: the factors of the attention's dropout (NUM_HEADS, T, T). kept: those of its output, the inner layer and
        the output of the layer.
    """
    attended = torch.ones(NUM_HEADS, len(x), len(x)).double() if attended is None else attended
    q, k, v = (x @ layer.self_attn.in_proj_weight.T + layer.self_attn.in_proj_bias).split(D, dim=-1)
    width, mixed = D // NUM_HEADS, torch.zeros_like(x)
    for head in range(NUM_HEADS):
        part = slice(head * width, (head + 1) * width)
        for t in range(len(x)):
            scores = torch.stack([q[t, part] @ k[s, part] / math.sqrt(width) for s in range(t + 1)])
            mixed[t, part] = (scores.softmax(0) * attended[head, t, : t + 1]) @ v[: t + 1, part]
    out = layer.self_attn.out_proj
    x = layer_norm(x + kept[0] * (mixed @ out.weight.T + out.bias), layer.norm1.weight, layer.norm1.bias)
    inner = kept[1] * torch.relu(x @ layer.linear1.weight.T + layer.linear1.bias)
    outer = kept[2] * (inner @ layer.linear2.weight.T + layer.linear2.bias)
    return layer_norm(x + outer, layer.norm2.weight, layer.norm2.bias)


@pytest.mark.parametrize("training", [True, False])
def test_layers_equal_the_equations_of_vaswani(training):
    backbone = make().double().train(training)
    tokens = torch.tensor([[3, 49, 0, 7, 7]])
    with torch.no_grad():
        x = math.sqrt(D) * backbone.embedding.weight[tokens[0]] + sinusoidal_positions(5, D).double()
        for layer, states in zip(backbone.layers, backbone(tokens).layers, strict=True):
            x = encoder_layer(layer, x)
            torch.testing.assert_close(states[0], x, rtol=0, atol=1e-9)


def test_dropout_is_at_the_four_places_of_torch_s_layer():
    T, rate = 6, 0.4
    layer = make(layer_dropout=rate).double().layers[0].train()
    x = torch.randn(1, T, D, dtype=torch.float64)
    torch.manual_seed(3)
    found = layer(x)
    torch.manual_seed(3)
    shapes = [(NUM_HEADS, T, T), (1, T, D), (1, T, FF), (1, T, D)]
    attended, *kept = (dropout(torch.ones(shape).double(), rate, training=True) for shape in shapes)
    expected = encoder_layer(layer, x[0], attended, [factor[0] for factor in kept])
    torch.testing.assert_close(found[0], expected, rtol=0, atol=1e-9)


def test_positions_are_sines_and_cosines_of_the_paper():
    table = sinusoidal_positions(40, 6)
    for t in (0, 1, 39):
        for i in range(3):
            angle = t / 10000 ** (2 * i / 6)
            assert table[t, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[t, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_every_matrix_is_xavier_uniform():
    for name, parameter in make().named_parameters():
        if parameter.dim() > 1:
            bound = math.sqrt(6 / sum(parameter.shape))
            assert parameter.abs().max() <= bound, name
            assert parameter.abs().max() > 0.9 * bound, name
            assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15), name


def test_parameters_by_formula():
    # embedding V d; a layer: 4 d^2 + 4 d attention, 2 d ff + ff + d feed-forward, 4 d norms
    expected = V * D + 2 * (4 * D * D + 4 * D + 2 * D * FF + FF + D + 4 * D)
    assert sum(p.numel() for p in make().parameters()) == expected


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"num_heads": 3}, "num_heads must divide d_model, got 3 heads for a width of 8"),
        ({"d_ff": 0}, "d_ff must be at least 1"),
        ({"layer_dropout": 1.0}, "layer_dropout must be in"),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        make(**params)
