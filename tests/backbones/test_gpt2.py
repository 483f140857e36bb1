"""GPT-2: parameters by formula, which states are normed, attention, dropout, cached keys, checkpointing, bfloat16, what
it refuses, and that it is imported late.
"""

import subprocess
import sys

import pytest
import torch
from torch import nn

from harness.backbones.gpt2 import GPT2
from harness.model import on_meta
from harness.protocols import Incremental

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
    [
        ("tiny", 128, 4, 4, 7_357_312),  # ours
        ("small", 768, 12, 12, 124_439_808),  # the others: Hugging Face's, to the parameter
        ("medium", 1024, 24, 16, 354_823_168),
        ("large", 1280, 36, 20, 774_030_080),
        ("xl", 1600, 48, 25, 1_557_611_200),
    ],
)
def test_the_sizes_have_gpt2s_parameters(size, d, num_layers, num_heads, published):
    with on_meta():
        backbone = GPT2(V, size=size)
    assert count(backbone) == by_formula(V, d, num_layers) == published
    assert backbone.layer_dims == (d,) * num_layers
    assert tuple(backbone.embedding.weight.shape) == (V, d)
    assert [block.attn.num_heads for block in backbone.model.h] == [num_heads] * num_layers


@pytest.mark.parametrize("params", [{"d_model": 24}, {"num_layers": 3}, {"num_heads": 4}, {"size": "medium"}])
def test_each_number_given_is_in_the_place_of_the_sizes(params):
    backbone, sizes = make(**params), {**TINY, **params}
    assert backbone.layer_dims == (sizes["d_model"],) * sizes["num_layers"]
    assert count(backbone) == by_formula(11, sizes["d_model"], sizes["num_layers"])
    assert {block.attn.num_heads for block in backbone.model.h} == {sizes["num_heads"]}


def test_one_rate_is_that_of_all_dropouts():
    assert {module.p for module in make(dropout=0.3).modules() if isinstance(module, nn.Dropout)} == {0.3}


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


@pytest.mark.parametrize("pieces", [[1] * 12, [5, 1, 4, 2], [12]])
def test_pieces_with_cached_keys_equal_the_whole(pieces):
    backbone = make(num_layers=3).double()
    tokens = torch.randint(11, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole, state, found = backbone(tokens).layers, None, []
        for piece in tokens.split(pieces, dim=1):
            hidden = backbone.extend(piece, state)
            assert hidden.layers[0].shape == (2, piece.shape[1], 16)
            state = hidden.state
            found.append(hidden.layers)
    for layer, parts in zip(whole, zip(*found, strict=True), strict=True):
        torch.testing.assert_close(torch.cat(parts, dim=1), layer, rtol=0, atol=1e-9)
    assert isinstance(backbone, Incremental)


def test_cached_keys_end_at_1024_positions_and_in_training():
    backbone = make()
    with torch.no_grad():
        state = backbone.extend(torch.zeros(1, 1024, dtype=torch.int64)).state
        with pytest.raises(ValueError, match="gpt2 has 1024 positions, the text has 1025 tokens"):
            backbone.extend(torch.zeros(1, 1, dtype=torch.int64), state)
    with pytest.raises(ValueError, match="extend is for sampling"):
        backbone.train().extend(torch.zeros(1, 1, dtype=torch.int64))


def trained_on(layer, **params):
    """Gradients of a loss on one layer, from one seed, and the numbers kept for the way back."""
    backbone, kept = make(num_layers=4, dropout=0.3, **params).train(), [0]

    def keep(tensor):
        kept[0] += tensor.numel()
        return tensor

    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = backbone(torch.arange(40).view(2, 20) % 11).layers[layer].square().mean()
    loss.backward()
    return [p.grad for p in backbone.parameters() if p.grad is not None], kept[0]


@pytest.mark.parametrize(("precision", "layer"), [("fp32", 3), ("bf16", 3), ("fp32", 0)])
def test_checkpointing_keeps_less_and_gives_the_same_gradients_with_dropout(precision, layer):
    whole, kept = trained_on(layer, precision=precision)
    again, kept_again = trained_on(layer, precision=precision, gradient_checkpointing=True)
    assert len(whole) == len(again) > 12
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))
    assert kept_again < kept / 3


def test_bfloat16_rounds_products_in_training_only_and_the_states_are_float32():
    tokens = torch.tensor([[1, 4, 10, 0, 3]])
    exact, rounded = (make(dropout=0.0, precision=precision) for precision in ("fp32", "bf16"))
    assert all(torch.equal(a, b) for a, b in zip(exact(tokens).layers, rounded(tokens).layers, strict=True))
    exact.train()
    rounded.train()
    products = []
    rounded.model.h[0].mlp.c_fc.register_forward_hook(lambda module, args, output: products.append(output.dtype))
    for a, b in zip(exact(tokens).layers, rounded(tokens).layers, strict=True):
        assert b.dtype == torch.float32
        error = (a - b).abs().max() / a.abs().max()
        assert 1e-5 < error < 2**-5  # bfloat16 has 8 bits
    assert products == [torch.bfloat16]


@pytest.mark.system
def test_listing_the_backbones_does_not_import_transformers():
    # it takes seconds; `harness list`, every suite without gpt2 and every worker would wait for it
    code = (
        "import sys; from harness.cli import write\n"
        "write.list_components('backbones', as_json=True); write.list_components('heads', as_json=True)\n"
        "print('transformers' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert '"name": "gpt2"' in done.stdout
    assert done.stderr.splitlines()[-1:] == ["False"], done.stderr
