"""Mixtape: how its gates start, the order of its words, dropout."""

import math

import pytest
import small_heads
import torch
from small_heads import D, E, assert_independent, load, states

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


def set_gates(head, scores):
    """Gate scores that depend on neither word nor context."""
    return load(head, gate_word=0.0, gate_context__weight=0.0, gate_bias=scores)


def leaf(head, k):
    """A head whose every word takes its k-th facet, to 1e-13."""
    root, left, right = [(1, 1, 0), (1, -1, 0), (-1, 0, 1), (-1, 0, -1)][k]
    return set_gates(head, [30.0 * root, 30.0 * left, 30.0 * right])


def test_of_equally_frequent_words_the_lower_id_comes_first():
    head = make(vocab_size=3000, counts=torch.ones(3000, dtype=torch.int64), own_gates=0.01)
    assert head.by_frequency.tolist() == list(range(3000))


def masks(num_rows, num_positions, dropout):
    """(B, T, 4, E) what is kept in training: W is the identity, so that a leaf's logits are its facet."""
    head = load(make(vocab_size=E, counts=torch.arange(E), dropout=dropout, bias=False), output__weight=torch.eye(E))
    trained, evaluated = [], []
    for k in range(4):
        torch.manual_seed(5)
        trained.append(leaf(head, k).train()(tops(num_rows, num_positions)).z_BTV)
        evaluated.append(leaf(head, k).eval()(tops(num_rows, num_positions)).z_BTV)
    trained, evaluated = torch.stack(trained, dim=2), torch.stack(evaluated, dim=2)
    kept = trained.abs() > 1e-9
    torch.testing.assert_close(trained[kept], evaluated[kept] / (1 - dropout), rtol=0, atol=1e-9)
    assert (evaluated.abs() > 1e-9).all()
    return kept


def test_dropout_acts_in_training_only_and_scales_what_it_keeps():
    kept = masks(10, 30, dropout=0.2)
    assert kept.double().mean().item() == pytest.approx(0.8, abs=5 * 0.4 / math.sqrt(kept.numel()))
    assert masks(2, 3, dropout=0.0).all()


def test_dropout_masks_are_independent_over_positions_rows_components_and_units():
    assert_independent(masks(20, 30, dropout=0.5))
