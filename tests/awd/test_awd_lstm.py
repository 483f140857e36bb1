"""The LSTM of AWD-LSTM against loops with the same masks, its sizes, and that dropped weights are really used."""

import warnings

import pytest
import torch
from recurrent_cells import lstm_cell

from harness.backbones.awd_lstm import AwdLSTM
from harness.dropout import dropout

V, B, T = 9, 2, 4
SIZES = {"d_embed": 3, "d_hidden": 5, "d_last": 4}
RATES = {"dropout": 0.4, "hidden_dropout": 0.25, "input_dropout": 0.3, "embedding_dropout": 0.4, "weight_drop": 0.5}
TOKENS = torch.tensor([[1, 4, 8, 0], [2, 2, 5, 7]])


def built(**params):
    torch.manual_seed(0)
    return AwdLSTM(V, **{**SIZES, **RATES, **params}).double()


def mask(p, *shape):
    """The next mask that is drawn."""
    return dropout(torch.ones(shape, dtype=torch.float64), p, training=True)


class Weights:
    """The weights of a layer, the recurrent ones with a mask."""

    def __init__(self, layer, mask):
        self.weight_ih_l0, self.weight_hh_l0 = layer.weight_ih_l0, mask * layer.weight_hh_l0
        self.bias_ih_l0, self.bias_hh_l0 = layer.bias_ih_l0, layer.bias_hh_l0


def looped(backbone, tokens, carried=None):
    """The outputs of each layer, and of the top one before its dropout; masks are drawn as the equations say.

    Args:
        carried: the state before the tokens.
    """
    embedding = mask(RATES["embedding_dropout"], V, 1) * backbone.embedding.weight
    inputs = torch.stack([torch.stack([embedding[token] for token in row]) for row in tokens])
    inputs = inputs * mask(RATES["input_dropout"], len(tokens), 1, SIZES["d_embed"])
    found = []
    for index, layer in enumerate(backbone.layers):
        width = layer.hidden_size
        weights = Weights(layer, mask(RATES["weight_drop"], 4 * width, width))
        rows = []
        for number, row in enumerate(inputs):
            state, outputs = ([torch.zeros((), dtype=torch.float64)] * width,) * 2, []
            if carried is not None:
                state = tuple(list(each[0, number]) for each in carried[index])
            for x in row:
                h, state = lstm_cell(weights, x, state)
                outputs.append(torch.stack(h))
            rows.append(torch.stack(outputs))
        undropped = torch.stack(rows)
        rate = RATES["dropout" if index == len(backbone.layers) - 1 else "hidden_dropout"]
        inputs = undropped * mask(rate, len(tokens), 1, width)
        found.append(inputs)
    return found, undropped


def test_outputs_and_gradients_equal_loops_with_the_same_masks():
    backbone = built()
    torch.manual_seed(1)
    hidden = backbone(TOKENS)
    torch.manual_seed(1)
    expected, undropped = looped(backbone, TOKENS)
    for layer, due in zip(hidden.layers, expected, strict=True):
        torch.testing.assert_close(layer, due, rtol=0, atol=1e-12)
    torch.testing.assert_close(hidden.undropped, undropped, rtol=0, atol=1e-12)
    assert (type(hidden.layers), type(hidden.state)) == (tuple, tuple)
    torch.manual_seed(2)
    second = backbone(TOKENS.flip(0), hidden.state)
    torch.manual_seed(2)
    torch.testing.assert_close(
        second.layers[-1], looped(backbone, TOKENS.flip(0), hidden.state)[0][-1], rtol=0, atol=1e-12
    )
    weights = list(backbone.parameters())
    scale = torch.randn(B, T, SIZES["d_last"], dtype=torch.float64)
    found = torch.autograd.grad((hidden.layers[-1] * scale).sum(), weights)
    due = torch.autograd.grad((expected[-1] * scale).sum(), weights)
    for one, other in zip(found, due, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_dropped_recurrent_weight_is_not_used_and_gets_no_gradient():
    backbone = built(num_layers=1, **dict.fromkeys(RATES.keys() - {"weight_drop"}, 0.0))
    hidden = backbone(TOKENS)
    hidden.layers[-1].square().sum().backward()
    share = (backbone.layers[0].weight_hh_l0.grad == 0).double().mean().item()
    assert 0.2 < share < 0.8
    assert not torch.equal(backbone(TOKENS).layers[-1], hidden.layers[-1])  # another mask in the next segment
    assert {name for name, _ in backbone.layers[0].named_parameters()} == {
        "weight_ih_l0",
        "weight_hh_l0",
        "bias_ih_l0",
        "bias_hh_l0",
    }


def test_in_evaluation_nothing_is_dropped_and_the_state_is_carried():
    backbone = built().eval()
    plain = built(**dict.fromkeys(RATES, 0.0))
    whole, first = backbone(TOKENS), backbone(TOKENS[:, :3])
    second = backbone(TOKENS[:, 3:], first.state)
    for layer, other, last in zip(whole.layers, plain(TOKENS).layers, second.layers, strict=True):
        torch.testing.assert_close(layer, other, rtol=0, atol=0)
        torch.testing.assert_close(last[:, 0], layer[:, 3], rtol=0, atol=1e-12)


def test_training_prints_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backbone = built().float()
        for _ in range(2):
            backbone(TOKENS).layers[-1].sum().backward()


def test_parameters_by_formula():
    # embedding V e; a layer 4 h (n_in + h) + 8 h (Yang et al. (2018); HEADS section 5)
    backbone = AwdLSTM(10_000, d_embed=280, d_hidden=960, d_last=620)
    layers = sum(4 * h * (n + h) + 8 * h for n, h in ((280, 960), (960, 960), (960, 620)))
    assert sum(p.numel() for p in backbone.parameters()) == 10_000 * 280 + layers
    assert backbone.layer_dims == (960, 960, 620)
    assert AwdLSTM(V, **{**SIZES, "d_last": None}).layer_dims == (5, 5, 3)


def test_without_parameters_it_is_the_model_of_merity_et_al():
    # 400-wide embedding, three layers of 1150, the top one of 400: 24 million parameters with 10,000 words, tied
    with torch.device("meta"):
        backbone = AwdLSTM(10_000)
    assert backbone.layer_dims == (1150, 1150, 400)
    layers = sum(4 * h * (n + h) + 8 * h for n, h in ((400, 1150), (1150, 1150), (1150, 400)))
    assert sum(p.numel() for p in backbone.parameters()) == 10_000 * 400 + layers
    rates = backbone.dropout.p, backbone.hidden_dropout.p, backbone.input_dropout.p
    assert (*rates, backbone.embedding_dropout, backbone.weight_drop) == (0.4, 0.25, 0.4, 0.1, 0.5)


def test_the_embedding_starts_uniform():
    weight = AwdLSTM(2000, d_embed=50, d_hidden=1, num_layers=1).embedding.weight
    assert 0.0999 < weight.max() <= 0.1
    assert -0.1 <= weight.min() < -0.0999
    assert weight.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.01)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"d_embed": 0, "d_last": 4}, "d_embed must be at least 1, got 0"),
        ({"d_last": 0}, "d_last must be at least 1, got 0"),
        ({"d_hidden": 0}, "d_hidden must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"weight_drop": 1.0}, r"weight_drop must be in \[0, 1\), got 1.0"),
        ({"embedding_dropout": -0.1}, r"embedding_dropout must be in \[0, 1\), got -0.1"),
        ({"input_dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
    ],
)
def test_bad_parameters_are_refused(params, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        AwdLSTM(V, **params)
