"""Mixtape: parameters, the tree of sigmoids, whose words have gates of their own, start, dropout, what it refuses."""

import math

import pytest
import torch
from handmade import count
from torch import nn

from harness.heads.mixtape import Mixtape
from harness.protocols import HeadDims, Hidden

V, D, E, G = 20, 5, 6, 3
COUNTS = torch.tensor([5, 9, 1, 9, 7] + [2] * (V - 5))  # by frequency: 1, 3 (of equal ones the lower id), 4, 0, 5 ..


def make(*, layer_dims=(4, D), d_embed=E, vocab_size=V, counts=COUNTS, d_gate=G, **params):
    torch.manual_seed(0)
    dims = HeadDims(vocab_size=vocab_size, layer_dims=layer_dims, d_embed=d_embed, token_counts=counts)
    return Mixtape(dims, nn.Embedding(vocab_size, d_embed), d_gate=d_gate, **params).double()


def states(*shape):
    generator = torch.Generator().manual_seed(1)
    shape = shape or (2, 3)
    return Hidden(tuple(torch.randn(*shape, width, dtype=torch.float64, generator=generator) for width in (4, D)))


@pytest.mark.parametrize(
    ("own_gates", "R"),
    [(0.0, 0), (0.1, 2), (0.13, 3), (0.5, 10), (1.0, 20)],  # R: own_gates V to the nearest
)
def test_parameters_by_formula(own_gates, R):
    # H 4 E D; U 3 d_gate D; u 3 D; v d_gate and e 3 for each gate, of which there are R + 1; W and b
    expected = 4 * E * D + 3 * G * D + 3 * D + (R + 1) * (G + 3) + V * E + V
    assert count(make(own_gates=own_gates)) == expected
    assert count(make(own_gates=own_gates, bias=False)) == expected - V
    assert count(make(own_gates=own_gates, tie_weights=True)) == expected


def test_defaults_are_gates_32_wide_for_a_tenth_of_the_words():
    dims = HeadDims(vocab_size=V, layer_dims=(D,), d_embed=E, token_counts=COUNTS)
    head = Mixtape(dims, nn.Embedding(V, E))
    assert count(head) == 4 * E * D + 3 * 32 * D + 3 * D + (2 + 1) * (32 + 3) + V * E + V


def test_tied_weights_are_the_embedding_itself():
    embedding = nn.Embedding(V, E)
    dims = HeadDims(vocab_size=V, layer_dims=(D,), d_embed=E)
    assert Mixtape(dims, embedding, tie_weights=True).output.weight is embedding.weight
    assert Mixtape(dims, embedding).output.weight is not embedding.weight


def test_matrices_are_xavier_uniform():
    head = make(layer_dims=(9, 40), d_embed=60, vocab_size=400, counts=None, d_gate=20)
    for matrix in (head.output.weight, head.latent.weight, head.gate_hidden.weight, head.gate_context.weight):
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.95 * bound < matrix.abs().max() <= bound * (1 + 1e-6)
        assert matrix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)


def test_gates_start_without_bias_and_with_a_tenth_of_the_embeddings_noise():
    head = make(vocab_size=1000, counts=None, own_gates=0.5, d_gate=20)
    assert torch.equal(head.gate_bias, torch.zeros(501, 3, dtype=torch.float64))
    assert head.gate_word.std().item() == pytest.approx(0.1, rel=0.03)
    assert head.gate_word.mean().item() == pytest.approx(0, abs=5 * 0.1 / math.sqrt(501 * 20))


def test_the_gates_noise_is_a_tenth_of_a_normal_draw(monkeypatch):
    monkeypatch.setattr(torch, "randn", lambda *shape: torch.full(shape, 2.0))
    expected = torch.full((3, G), 0.2, dtype=torch.float64)
    torch.testing.assert_close(make().gate_word.detach(), expected, rtol=0, atol=1e-7)


def set_gates(head, scores):
    """Gate scores that depend on neither word nor context."""
    with torch.no_grad():
        head.gate_word.zero_()
        head.gate_context.weight.zero_()
        head.gate_bias.copy_(torch.tensor(scores))
    return head


@pytest.mark.parametrize(
    # odds of the root, the left and the right sigmoid -> s s', s (1 - s'), (1 - s) s'', (1 - s) (1 - s'')
    ("odds", "expected"),
    [
        ((1, 1, 1), (1 / 4, 1 / 4, 1 / 4, 1 / 4)),
        ((3, 1, 1), (3 / 8, 3 / 8, 1 / 8, 1 / 8)),
        ((3, 4, 1), (3 / 5, 3 / 20, 1 / 8, 1 / 8)),
        ((3, 4, 9), (3 / 5, 3 / 20, 9 / 40, 1 / 40)),
    ],
)
def test_gates_are_a_tree_of_three_sigmoids(odds, expected):
    head = set_gates(make(), [math.log(each) for each in odds])
    found = head.gates(states().layers[-1])
    assert found.shape == (2, 3, 2 + 1, 4)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64).expand_as(found), rtol=0, atol=1e-7)


def test_gate_scores_add_up_the_words_the_contexts_and_the_bias_part():
    head, h = make(), torch.tensor([0.5, -1.0, 2.0, 0.25, 1.0], dtype=torch.float64)
    nn.init.normal_(head.gate_bias)
    for r in range(3):
        scores = []
        for i in range(3):
            hidden = [math.tanh((head.gate_hidden.weight[i * G + g] @ h).item()) for g in range(G)]
            by_word = sum(head.gate_word[r, g].item() * hidden[g] for g in range(G))
            scores.append(by_word + (head.gate_context.weight[i] @ h).item() + head.gate_bias[r, i].item())
        s, left, right = (1 / (1 + math.exp(-score)) for score in scores)
        expected = [s * left, s * (1 - left), (1 - s) * right, (1 - s) * (1 - right)]
        assert head.gates(h.view(1, 1, D))[0, 0, r].tolist() == pytest.approx(expected, abs=1e-12)


def leaf(head, k):
    """A head whose every word takes its k-th facet, to 1e-13."""
    root, left, right = [(1, 1, 0), (1, -1, 0), (-1, 0, 1), (-1, 0, -1)][k]
    return set_gates(head, [30.0 * root, 30.0 * left, 30.0 * right])


@pytest.mark.parametrize("k", range(4))
def test_each_leaf_of_the_tree_weights_its_facet(k):
    head, hidden = leaf(make(), k), states()
    facet = torch.tanh(hidden.layers[-1] @ head.latent.weight[k * E : (k + 1) * E].T)
    expected = (facet @ head.output.weight.T + head.output.bias).log_softmax(-1)
    torch.testing.assert_close(head(hidden).log_probs(), expected, rtol=0, atol=1e-10)


def words_that_change(head, gate):
    """Ids of the words whose logit moves with one gate's bias."""
    before = head(states()).z_BTV.detach()
    with torch.no_grad():
        head.gate_bias[gate] += 1
    return (head(states()).z_BTV - before).abs().amax((0, 1)).gt(1e-9).nonzero().flatten().tolist()


def test_the_most_frequent_words_have_gates_of_their_own_in_order():
    assert [words_that_change(make(own_gates=0.2), gate) for gate in range(4)] == [[1], [3], [4], [0]]


def test_all_other_words_share_the_last_gate():
    assert words_that_change(make(own_gates=0.2), 4) == [2, *range(5, V)]
    assert words_that_change(make(own_gates=0.0), 0) == list(range(V))


def test_with_gates_for_all_the_shared_one_does_nothing():
    head = make(own_gates=1.0)
    assert words_that_change(head, V) == []
    assert words_that_change(head, V - 1) == [2]  # the rarest word's


def test_of_equally_frequent_words_the_lower_id_comes_first():
    head = make(vocab_size=3000, counts=torch.ones(3000, dtype=torch.int64), own_gates=0.01)
    assert head.by_frequency.tolist() == list(range(3000))


def test_it_counts_without_frequencies_and_refuses_to_run():
    head = make(counts=None)
    with pytest.raises(RuntimeError, match=r"mixtape needs HeadDims\.token_counts"):
        head(states())


def masks(num_rows, num_positions, dropout):
    """(B, T, 4, E) what is kept in training: W is the identity, so that a leaf's logits are its facet."""
    head = make(vocab_size=E, counts=torch.arange(E), dropout=dropout, bias=False).train()
    with torch.no_grad():
        head.output.weight.copy_(torch.eye(E))
    trained, evaluated = [], []
    for k in range(4):
        torch.manual_seed(5)
        trained.append(leaf(head, k).train()(states(num_rows, num_positions)).z_BTV)
        evaluated.append(leaf(head, k).eval()(states(num_rows, num_positions)).z_BTV)
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
    kept = masks(20, 30, dropout=0.5)
    for axis in range(4):
        agreeing = (kept.narrow(axis, 0, 1) == kept.narrow(axis, 1, 1)).double().mean().item()
        assert 0.3 < agreeing < 0.7, axis  # 1 if they shared a mask


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"d_gate": 0}, "d_gate must be at least 1, got 0"),
        ({"d_gate": -1}, "d_gate must be at least 1, got -1"),
        ({"own_gates": -0.1}, r"own_gates must be in \[0, 1\], got -0\.1"),
        ({"own_gates": 1.1}, r"own_gates must be in \[0, 1\], got 1\.1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1\.0"),
        ({"dropout": 1.5}, r"dropout must be in \[0, 1\), got 1\.5"),
        ({"dropout": -0.1}, r"dropout must be in \[0, 1\), got -0\.1"),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        make(**params)


@pytest.mark.parametrize(
    "params", [{"d_gate": 1}, {"own_gates": 0.0}, {"own_gates": 1.0}, {"dropout": 0.0}, {"dropout": 0.99}]
)
def test_values_at_the_bounds_are_accepted(params):
    assert make(**params)(states()).log_probs().shape == (2, 3, V)
