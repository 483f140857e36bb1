"""Heads of ours on a few words, hidden states for them, and how parameters start."""

import math

import pytest
import torch
from torch import nn

from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS

V, D, E = 11, 4, 6


def texts_of(vocab_size):
    """(V,) texts of 0 to 5 bytes."""
    return tuple(f"{number:05}".encode()[: number % 6] for number in range(vocab_size))


def make(
    name, *, layer_dims=(9, E), embedding=E, vocab_size=V, counts="rising", texts="some", dtype=torch.float64, **params
):
    """A head as seed 0 makes it. `embedding`: a module, or its width; `dtype`: None leaves what it was built in."""
    torch.manual_seed(0)
    counts = torch.arange(1, vocab_size + 1) if isinstance(counts, str) else counts
    texts = texts_of(vocab_size) if isinstance(texts, str) else texts
    embedding = nn.Embedding(vocab_size, embedding) if isinstance(embedding, int) else embedding
    width = embedding.embedding_dim
    known = {"token_counts": counts, "token_bytes": texts}
    dims = HeadDims(vocab_size=vocab_size, layer_dims=layer_dims, d_embed=width, **known)
    head = HEADS.get(name)(dims, embedding, **params)
    return head if dtype is None else head.to(dtype)


def states(*shape, widths=(E,), dtype=torch.float64):
    """Normal states, drawn in `dtype`, (2, 3) tokens of them where nothing else is said."""
    generator = torch.Generator().manual_seed(1)
    return Hidden(tuple(torch.randn(*(shape or (2, 3)), D, dtype=dtype, generator=generator) for D in widths))


def randomise(head, std, *, seed=0, dtype=torch.float64):
    """The head in evaluation, every parameter normal, drawn in `dtype`: nothing hides behind a zero or a tie."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(std * torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return head.eval()


def load(head, **tensors):
    """Overwrite parameters; a name's dots are written as double underscores."""
    with torch.no_grad():
        for name, tensor in tensors.items():
            head.get_parameter(name.replace("__", ".")).copy_(torch.as_tensor(tensor))
    return head


def assert_fills(tensor, bound, *, nearly=0.98, rel=0.1):
    """Uniform on [-bound, bound]: nothing beyond, the largest near it, the standard deviation bound / sqrt(3)."""
    assert nearly * bound < tensor.abs().max().item() <= bound
    assert tensor.std().item() == pytest.approx(bound / math.sqrt(3), rel=rel)


def assert_independent(kept):
    """Masks of dropout (B, T, K, E): of neighbours along any axis about half agree; all would if they shared one."""
    for axis in range(4):
        agreeing = (kept.narrow(axis, 0, 1) == kept.narrow(axis, 1, 1)).double().mean().item()
        assert 0.3 < agreeing < 0.7, axis


def assert_scaled(trained, evaluated, rate, *, masks):
    """Dropout of that rate, drawn `masks` times: the share that is kept, and what is kept divided by it."""
    kept = trained != 0
    assert kept.double().mean().item() == pytest.approx(1 - rate, abs=5 * math.sqrt(rate * (1 - rate) / masks))
    torch.testing.assert_close(trained[kept], evaluated[kept] / (1 - rate), rtol=0, atol=1e-12)
