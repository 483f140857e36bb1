"""Mixtape: how its gates start, the order of its words, dropout."""

import math

import pytest
import small_heads
import torch
from small_heads import D, E, assert_independent, assert_scaled, states

V, G = 20, 3
COUNTS = torch.tensor([5, 9, 1, 9, 7] + [2] * (V - 5))  # by frequency: 1, 3 (of equal ones the lower id), 4, 0, 5 ..


def make(*, vocab_size=V, counts=COUNTS, d_gate=G, **params):
    given = {"vocab_size": vocab_size, "counts": counts, "d_gate": d_gate, **params}
    return small_heads.make("mixtape", layer_dims=(9, D), **given)


def tops(*shape):
    return states(*shape, widths=(D,))


def test_gates_start_without_bias_and_with_a_tenth_of_the_embeddings_noise(monkeypatch):
    head = make(vocab_size=1000, counts=None, own_gates=0.5, d_gate=20)
    assert torch.equal(head.gate_bias, torch.zeros(501, 3, dtype=torch.float64))
    assert head.gate_word.std().item() == pytest.approx(0.1, rel=0.03)
    assert head.gate_word.mean().item() == pytest.approx(0, abs=5 * 0.1 / math.sqrt(501 * 20))
    monkeypatch.setattr(torch, "randn", lambda *shape: torch.full(shape, 2.0))
    expected = torch.full((3, G), 0.2, dtype=torch.float64)
    torch.testing.assert_close(make().gate_word.detach(), expected, rtol=0, atol=1e-7)


def test_of_equally_frequent_words_the_lower_id_comes_first():
    head = make(vocab_size=3000, counts=torch.ones(3000, dtype=torch.int64), own_gates=0.01)
    assert head.by_frequency.tolist() == list(range(3000))


def test_dropout_masks_of_the_facets_are_independent_and_what_they_keep_is_scaled():
    head, seen = make(dropout=0.5), []
    head.dropout.register_forward_hook(lambda module, given, kept: seen.append((given[0], kept)))
    hidden = tops(20, 30)
    evaluated, trained = head.eval()(hidden).z_BTV, head.train()(hidden).z_BTV
    (_, whole), (facets, kept) = seen
    assert torch.equal(whole, torch.tanh(head.latent(hidden.layers[-1])))
    assert torch.equal(facets, whole)
    assert not torch.equal(trained, evaluated)
    assert_scaled(kept, whole, 0.5, masks=whole.numel())
    assert_independent(kept.view(20, 30, 4, E) != 0)
