"""GPT-2: parameters by formula, which states are normed, dropout, what it refuses, and that it is imported late."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from backbones.gpt2 import GPT2
from harness.conformance import conformance
from harness.trial.model import on_meta

TINY = {"num_layers": 2, "d_model": 16, "num_heads": 2}
V = 50_257


def make(vocab_size=11, **params):
    torch.manual_seed(0)
    return GPT2(vocab_size, **{**TINY, **params}).eval()


def count(module):
    return sum(p.numel() for p in module.parameters())


def by_formula(vocab_size, d, num_layers):
    """HEADS.md section 5; the output matrix is the embedding, or the head's own."""
    return vocab_size * d + 1024 * d + num_layers * (12 * d * d + 13 * d) + 2 * d


@pytest.mark.parametrize(
    ("size", "d", "num_layers", "num_heads", "published"),
    [("small", 768, 12, 12, 124_439_808), ("medium", 1024, 24, 16, 354_823_168)],  # Hugging Face's, to the parameter
)
def test_the_two_sizes_have_gpt2s_parameters(size, d, num_layers, num_heads, published):
    with on_meta():
        backbone = GPT2(V, size=size)
    assert count(backbone) == by_formula(V, d, num_layers) == published
    assert backbone.layer_dims == (d,) * num_layers
    assert tuple(backbone.embedding.weight.shape) == (V, d)
    assert [block.attn.num_heads for block in backbone.model.h] == [num_heads] * num_layers


def test_small_is_the_default():
    with on_meta():
        assert GPT2(V).layer_dims == (768,) * 12


@pytest.mark.parametrize("params", [{"d_model": 24}, {"num_layers": 3}, {"num_heads": 4}, {"size": "medium"}])
def test_each_number_given_is_in_the_place_of_the_sizes(params):
    backbone, sizes = make(**params), {**TINY, **params}
    assert backbone.layer_dims == (sizes["d_model"],) * sizes["num_layers"]
    assert count(backbone) == by_formula(11, sizes["d_model"], sizes["num_layers"])
    assert {block.attn.num_heads for block in backbone.model.h} == {sizes["num_heads"]}


def test_the_embedding_offered_for_tying_is_the_one_tokens_are_looked_up_in():
    backbone, seen = make(), []
    backbone.embedding.register_forward_hook(lambda module, args, output: seen.append(args[0]))
    tokens = torch.tensor([[1, 4, 10]])
    backbone(tokens)
    assert isinstance(backbone.embedding, nn.Embedding)
    assert [each.tolist() for each in seen] == [tokens.tolist()]


def test_the_top_layer_is_normed_and_those_below_are_the_blocks_outputs():
    backbone, outputs = make(num_layers=3), []
    for block in backbone.model.h:
        block.register_forward_hook(
            lambda module, args, output: outputs.append(output[0] if isinstance(output, tuple) else output)
        )
    layers = backbone(torch.tensor([[1, 4, 10, 0], [2, 2, 3, 5]])).layers
    assert len(layers) == len(outputs) == 3
    for layer, output in zip(layers[:-1], outputs[:-1], strict=True):
        torch.testing.assert_close(layer, output, rtol=0, atol=0)
        assert (layer.var(-1, correction=0) - 1).abs().min() > 0.5  # small weights at the start
    top, raw = layers[-1], outputs[-1]
    torch.testing.assert_close(top.mean(-1), torch.zeros(2, 4), rtol=0, atol=1e-5)  # the final norm's gain starts at 1
    variance = raw.var(-1, correction=0)
    expected = variance / (variance + 1e-5)  # the norm's epsilon
    torch.testing.assert_close(top.var(-1, correction=0), expected, rtol=0, atol=1e-5)
    centred = (raw - raw.mean(-1, keepdim=True)) / (variance + 1e-5).sqrt()[..., None]
    torch.testing.assert_close(top, centred, rtol=0, atol=1e-4)


def test_its_gelu_is_the_tanh_approximation():
    x = torch.tensor([-2.0, -0.5, 0.5, 2.0], dtype=torch.float64)
    expected = 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))
    for block in make().model.h:
        torch.testing.assert_close(block.mlp.act(x), expected, rtol=0, atol=1e-9)


def test_one_rate_is_that_of_all_dropouts():
    rates = {module.p for module in make(dropout=0.3).modules() if isinstance(module, nn.Dropout)}
    assert rates == {0.3}
    assert {module.p for module in make().modules() if isinstance(module, nn.Dropout)} == {0.1}


def test_dropout_acts_in_training_only():
    backbone, tokens = make(dropout=0.5), torch.tensor([[1, 4, 10]])
    assert torch.equal(backbone(tokens).layers[-1], backbone(tokens).layers[-1])
    backbone.train()
    assert not torch.equal(backbone(tokens).layers[-1], backbone(tokens).layers[-1])


def test_positions_matter_and_there_is_no_state():
    hidden = make()(torch.tensor([[3, 3, 3]]))
    assert hidden.state is None
    assert not torch.allclose(hidden.layers[0][:, 1], hidden.layers[0][:, 2])


def test_1024_tokens_are_taken_and_one_more_refused():
    backbone = make()
    with torch.no_grad():
        assert backbone(torch.zeros(1, 1024, dtype=torch.int64)).layers[-1].shape == (1, 1024, 16)
        with pytest.raises(ValueError, match="gpt2 has 1024 positions, the segment has 1025 tokens"):
            backbone(torch.zeros(1, 1025, dtype=torch.int64))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"d_model": 0}, "d_model must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"num_heads": 3}, "num_heads must divide d_model, got 3 heads for a width of 16"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1\.0"),
        ({"dropout": -0.1}, r"dropout must be in \[0, 1\), got -0\.1"),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        make(**params)


@pytest.mark.parametrize("params", [{"num_layers": 1}, {"num_heads": 1}, {"num_heads": 16}, {"dropout": 0.0}])
def test_values_at_the_bounds_are_accepted(params):
    assert make(**params)(torch.tensor([[1, 2]])).layers[-1].shape == (1, 2, 16)


def test_a_tiny_one_conforms():
    kind, outcomes = conformance("gpt2", TINY)
    assert kind == "backbone"
    assert {outcome.variant for outcome in outcomes} == {"defaults", "size=medium"}
    assert [str(outcome) for outcome in outcomes if not outcome.passed] == []


def test_listing_the_backbones_does_not_import_transformers():
    # it takes seconds; `harness list`, every suite without gpt2 and every worker would wait for it
    code = (
        "import sys; from harness.cli import components\n"
        "components.list_components('backbones', True); components.list_components('heads', True)\n"
        "print('transformers' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert '"name": "gpt2"' in done.stdout
    assert done.stderr.splitlines()[-1:] == ["False"], done.stderr
