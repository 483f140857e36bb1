"""Every head of ours against its loop oracle in float64: log-probabilities, losses and every gradient.

Every parameter is random, so that no term hides behind a zero, an identity or a tie that a head starts with, and every
layer of the hidden states has other content.
"""

import contextlib
import functools

import oracles
import pytest
import torch
from head_table import rows
from hypothesis import given, settings
from hypothesis import strategies as st
from small_heads import make, randomise, states
from torch import nn

from harness.protocols import Hidden

B, T, V = 2, 4, 9
TARGETS = torch.tensor([[0, 6, 8, 3], [3, 3, 1, 7]])
TEXTS = (b"", b"a", b"ab", b"abc", b"\xff\x00\x80", b"a", b"bcdef", b"b", b"\xc3\xa9z")
TOKEN_COUNTS = [5, 0, 9, 5, 1, 2, 9, 1, 3]  # ties, and a word that never occurs
EQUAL, UNEQUAL = ((4, 4, 4), 4), ((4, 5, 7), 6)  # widths of the layers and of the embedding
VARIANTS = [
    *((*row, EQUAL) for row in rows("oracle")),
    *((*row, UNEQUAL) for row in rows("oracle_unequal")),
    *((*row, ((3, 4, 5, 7), 6)) for row in rows("oracle_four_layers")),
]
variants = pytest.mark.parametrize(("name", "params", "widths"), VARIANTS, ids=str)


@contextlib.contextmanager
def default_float64():
    """A buffer in torch's default type (nce's log q) is then as exact as the loops."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def build(name, params, widths, shape=(B, T)):
    given = {"vocab_size": V, "layer_dims": widths[0], "counts": torch.tensor(TOKEN_COUNTS), "texts": TEXTS}
    torch.manual_seed(0)  # every head of a variant has the same embedding
    with default_float64():
        embedding = nn.Embedding(V, widths[1])
        head = randomise(make(name, embedding=embedding, **given, **params), 0.8, seed=1)
    tied = any(parameter is embedding.weight for parameter in head.parameters())
    assert tied == params.get("tie_weights", False)
    return head, Hidden(tuple(layer.requires_grad_() for layer in states(*shape, widths=widths[0]).layers))


class Case:
    """A head, its inputs, and what the loops make of them."""

    def __init__(self, name, params, widths, shape=(B, T)):
        self.name, (self.head, self.hidden) = name, build(name, params, widths, shape)
        self.named = dict(self.head.named_parameters())
        if "embedding" in vars(self.head) and not params.get("tie_weights"):
            self.named["embedding.weight"] = self.head.embedding.weight  # the backbone's, which the loss reads
        self.inputs = [*self.hidden.layers, *self.named.values()]
        self.known = {"token_counts": TOKEN_COUNTS, "token_bytes": TEXTS, **params}
        self.logp = oracles.log_probs(name, self.hidden.layers, self.named, **self.known)
        self.expected = oracles.stacked(self.logp)

    def losses(self, targets=TARGETS, weights=None):
        """(ours, that of the loops)."""
        distribution, more = self.head(self.hidden), {}
        if self.name == "nce":
            torch.manual_seed(2)
            more = {"noise_words": distribution.noise.sample(self.known.get("num_noise", 100)).tolist()}
        torch.manual_seed(2)
        weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)
        return distribution.training_loss(targets, weight), self.of_words(targets.tolist(), weights, **more)

    def of_words(self, targets, weights=None, **more):
        """The training loss by the loops."""
        loss = oracles.TRAINING_LOSSES[self.name]
        return loss(self.logp, self.hidden.layers, targets, self.named, weights, **self.known, **more)

    def assert_equal(self, ours, theirs):
        """The losses and their gradients."""
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
        for a, b in zip(gradients(ours, self.inputs), gradients(theirs, self.inputs), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@functools.cache
def case_at(index):
    return Case(*VARIANTS[index])


def case(name, params, widths):
    return case_at(VARIANTS.index((name, params, widths)))


def gradients(loss, inputs):
    """With zeros for what the loss does not depend on."""
    return torch.autograd.grad(loss, inputs, retain_graph=True, allow_unused=True, materialize_grads=True)


@variants
def test_log_probs_nll_and_statistics_equal_the_loops(name, params, widths):
    of = case(name, params, widths)
    distribution, picked = of.head(of.hidden), of.expected.gather(-1, TARGETS[..., None])[..., 0]
    torch.testing.assert_close(distribution.log_probs(), of.expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(distribution.nll(TARGETS), -picked, rtol=0, atol=1e-9)
    torch.testing.assert_close(distribution.mean_nll(TARGETS), -picked.mean(), rtol=0, atol=1e-9)
    if "compat" not in params:  # with an epsilon they are of the distribution without it
        assert_statistics(of)


@variants
def test_the_training_loss_the_z_loss_and_every_gradient_equal_autograd_through_the_loops(name, params, widths):
    of = case(name, params, widths)
    of.assert_equal(*of.losses())
    assert_z_loss(of)


OWN_LOSSES = sorted(name for name, loss in oracles.TRAINING_LOSSES.items() if loss is not oracles.word_loss)


@pytest.mark.parametrize("name", ["mos", *OWN_LOSSES])
@settings(max_examples=6)
@given(data=st.data())
def test_losses_with_token_weights_equal_the_loops_in_segments_of_any_length(name, data):
    variant = data.draw(st.sampled_from([variant for variant in VARIANTS if variant[0] == name]))
    length = data.draw(st.integers(1, 4))

    def rows_of(each):
        return data.draw(st.lists(st.lists(each, min_size=length, max_size=length), min_size=2, max_size=2))

    targets, weights = torch.tensor(rows_of(st.integers(0, V - 1))), rows_of(st.sampled_from([0.0, 0.5, 1.0, 3.0]))
    of = Case(*variant, shape=(2, length))
    if any(map(any, weights)):
        of.assert_equal(*of.losses(targets, weights))
    else:
        with pytest.raises(ValueError, match="the weights of all tokens are 0"):
            of.losses(targets, weights)


def log_normalisers(of):
    """[n][k] log sum_x exp phi(z_k[x]) of each token, by loops over the logits of its softmaxes."""
    d, h_ND = of.head(of.hidden), of.hidden.layers[-1].flatten(0, 1)
    if of.name == "adaptive":
        tails = [f"layers.tail.{c}" for c in range(of.head.layers.n_clusters)]
        narrow = [[oracles.linear(of.named, f"{tail}.0", h) for tail in tails] for h in h_ND]
        first = [oracles.linear(of.named, "layers.head", h) for h in h_ND]
        scores = [
            [z, *(oracles.linear(of.named, f"{tail}.1", each) for tail, each in zip(tails, row, strict=True))]
            for z, row in zip(first, narrow, strict=True)
        ]
    elif not hasattr(d, "facets_NFE"):
        scores = [[list(z)] for z in d.z_BTV.flatten(0, 1)]
    else:
        scores = []
        for facets in d.facets_NFE:
            scores.append([])
            first = 0
            for P in d.partitions:
                z = [oracles.dot(facets[first + x % P], d.weight_VE[x]) for x in range(V)]
                scores[-1].append([d.logit_map(z[x] if d.bias_V is None else z[x] + d.bias_V[x]) for x in range(V)])
                first += P
    return [[oracles.log_sum_exp(u) for u in row] for row in scores]


WEIGHTS = [[0.0, 1.0, 2.0, 0.5], [0.5, 1.0, 3.0, 0.0]]


def assert_z_loss(of):
    """That of every head and its gradients equal the loops."""
    losses, squares = [], []
    for z_loss in (0.0, 0.3):  # in place of the head's own
        distribution = of.head(of.hidden)
        distribution.z_loss = z_loss
        torch.manual_seed(2)
        losses.append(distribution.training_loss(TARGETS, torch.tensor(WEIGHTS)))
    for log_z, (*_, y) in zip(log_normalisers(of), oracles.tokens(TARGETS.tolist()), strict=True):
        if of.name == "adaptive":  # the softmax of the frequent words, and that of the target's cluster
            rank = sorted(range(V), key=lambda x: -TOKEN_COUNTS[x]).index(y)
            cluster = sum(rank >= end for end in of.head.layers.cutoffs[:-1])
            squares.append(log_z[0] ** 2 + (log_z[cluster] ** 2 if cluster else 0))
        else:
            squares.append(oracles.mean([each**2 for each in log_z]))
    of.assert_equal(losses[1] - losses[0], 0.3 * oracles.weighted(squares, WEIGHTS))


def assert_statistics(of):
    """Those of every token equal the loops."""
    found = of.head(of.hidden).statistics()
    log_z = torch.tensor([[each.item() for each in row] for row in log_normalisers(of)], dtype=torch.float64)
    torch.testing.assert_close(found.log_normaliser.flatten(0, 1), log_z, rtol=0, atol=1e-9)
    for b, row in enumerate(of.logp):
        for t, words in enumerate(row):
            entropy = -sum(word.exp() * word for word in words)
            assert found.entropy[b, t].item() == pytest.approx(entropy.item(), abs=1e-9)
            best = max(words, key=lambda word: word.item())
            assert words[found.top[b, t]].item() == pytest.approx(best.item(), abs=1e-9)
            assert found.top_logp[b, t].item() == pytest.approx(best.item(), abs=1e-9)


@pytest.mark.parametrize(("num_pieces", "bound"), [(8, 20.0), (3, 7.0)])
@pytest.mark.parametrize("name", ["plif"])
def test_the_mapped_logits_equal_the_formula(name, num_pieces, bound):
    # a softmax would hide a constant added to all of them; on and far off both sides of every bend
    head, _ = build(name, {"num_pieces": num_pieces, "bound": bound}, EQUAL)
    logits = torch.linspace(-31, 33, 50, dtype=torch.float64)
    expected = [oracles.plif_logit(z, head.raw_slope, bound) for z in logits]
    torch.testing.assert_close(head.phi(logits), torch.stack(expected), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["softmax", "mos"])
def test_the_binary_loss_of_near_certain_words_equals_the_loops(name):
    of = Case(name, {"loss": "binary"} | ({"num_mixtures": 2} if name == "mos" else {}), EQUAL)
    with torch.no_grad():
        of.head.output.bias[5] += 40.0
    of.logp = oracles.log_probs(name, of.hidden.layers, of.named, **of.known)
    assert all(words[5].exp() > 1 - 1e-7 for row in of.logp for words in row)
    of.assert_equal(*of.losses())


def test_nce_contrasts_the_target_with_given_noise_words_even_with_one_that_never_occurs():
    of = case("nce", {}, EQUAL)
    contrast = of.head(of.hidden).contrast(TARGETS.reshape(-1), torch.tensor([4, 1, 4, 2]))
    torch.testing.assert_close(
        contrast.mean(), of.of_words(TARGETS.tolist(), noise_words=[4, 1, 4, 2]), rtol=0, atol=1e-9
    )
