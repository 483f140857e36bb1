"""Kneser-Ney n-grams: by hand, against loops over dictionaries, as distributions, and what they refuse."""

import math
from pathlib import Path

import numpy as np
import pytest
import rounding
import torch
from ngram_oracle import Oracle, cached
from scipy.optimize import minimize_scalar
from torch import nn

from harness.backbones.last_tokens import LastTokens
from harness.corpora.batching import Segment
from harness.corpora.local_text import Embedded
from harness.corpora.vocabulary import line_end as line_end_of
from harness.heads import kneser_ney
from harness.heads.kneser_ney import WINDOWS, KneserNey, discounts
from harness.model import LanguageModel
from harness.protocols import NO_TOKEN, HeadDims

NOVEL = Embedded().load(Path("no data"))
WORDS, TEXT = torch.unique(NOVEL.train[:8400], return_inverse=True)
V, END = len(WORDS) + 5, WORDS.tolist().index(line_end_of(NOVEL))  # the last five words are never seen
ONE = torch.tensor([[1]])
TRAIN, VALID = TEXT[:8000].tolist(), TEXT[8000:].tolist()


def model(order=3, *, length=50, line_end=END, train=TRAIN, vocab_size=V, **params):
    """A backbone and a head that has counted a text."""
    backbone = LastTokens(vocab_size, length=length)
    dims = HeadDims(vocab_size=vocab_size, layer_dims=backbone.layer_dims, d_embed=0)
    head = KneserNey(dims, backbone.embedding, order=order, **params)
    head.count(torch.as_tensor(train), line_end)
    return LanguageModel(backbone, head)


def scored(built, text, segment=10_000):
    """(N - 1,) nll of all tokens of a text but the first, read in segments."""
    tokens, state, found = torch.tensor([text]), None, []
    for begin in range(0, len(text) - 1, segment):
        part = tokens[:, begin : begin + segment + 1]
        distribution, state = built(Segment(part[:, :-1], part[:, 1:]), state)
        found.append(distribution.nll(part[:, 1:])[0])
    return torch.cat(found)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("line_end", [END, None])
def test_every_word_after_many_contexts_equals_the_loops(order, line_end):
    oracle, built = Oracle(TRAIN, order, range(V), line_end), model(order, line_end=line_end)
    text = [*VALID[:20], V - 1, 5, END, 6, V - 1]
    p_TV = built(Segment(x := torch.tensor([text]), x))[0].log_probs()[0].exp()
    expected = torch.tensor(
        [[oracle.probability(word, text[: end + 1]) for word in range(V)] for end in range(len(text))],
        dtype=torch.float64,
    )
    assert torch.allclose(p_TV, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("line_end", [END, None])
def test_probabilities_with_a_cache_sum_to_one_and_are_those_that_are_scored(line_end):
    distribution = model(5, cache=True, line_end=line_end)(Segment(x := torch.tensor([VALID]), x))[0]
    logp_TV = distribution.log_probs()[0]
    assert (logp_TV.exp().sum(-1) - 1).abs().max() < rounding.bound(V)
    for word in (END, 1, 17, V - 1):
        nll_T = distribution.nll(torch.full((1, len(VALID)), word))[0]
        assert (nll_T + logp_TV[:, word]).abs().max() < 1e-12


@pytest.mark.parametrize("length", [50, 100])
def test_a_cache_equals_the_loops(length):
    """Its window may be shorter than what the backbone returns."""
    built = model(3, cache=True, length=length)
    built.head.cache_window.fill_(50)
    window, weight = int(built.head.cache_window), float(built.head.cache_weight)
    oracle, text = Oracle(TRAIN, 3, range(V), END), VALID[:120]
    expected = [
        -math.log((1 - weight) * oracle.probability(text[i], text[:i]) + weight * cached(text[i], text[:i], window))
        for i in range(1, len(text))
    ]
    assert 0 < weight < 1
    assert scored(built, text).tolist() == pytest.approx(expected, rel=1e-11)


# Words that come back after 12 tokens, and after 51: a cache of 50 does not reach these.
SOON = [word for begin in range(0, 280, 4) for word in TRAIN[begin : begin + 4] * 3]
LATE = [word for begin in range(0, 408, 51) for word in TRAIN[begin : begin + 51] * 2]


def best(first, held_out, line_end):
    """(window, weight) by the loops, and the same search for the weight of every window."""
    oracle, places, found = Oracle(first, 3, range(V), line_end), range(1, len(held_out)), {}
    ngram = np.array([oracle.probability(held_out[i], held_out[:i]) for i in places])
    for window in WINDOWS:
        recent = np.array([cached(held_out[i], held_out[:i], window) for i in places])
        found[window] = minimize_scalar(
            lambda weight, recent=recent: -np.log((1 - weight) * ngram + weight * recent).mean(),
            bounds=(0, 1),
            method="bounded",
        )
    window = min(found, key=lambda window: found[window].fun)
    return window, pytest.approx(found[window].x, abs=1e-6)


@pytest.mark.parametrize(("held_out", "window"), [(SOON, 50), (LATE, 100)])
def test_window_and_weight_of_a_cache_are_the_best_on_a_text_that_is_held_out(held_out, window):
    head = model(3, length=WINDOWS[-1]).head
    assert best(TRAIN, held_out, END) == head._chosen(torch.tensor(TRAIN), torch.tensor(held_out))
    assert best(TRAIN, held_out, END)[0] == window


@pytest.mark.parametrize("line_end", [END, None])
def test_held_out_is_the_last_tenth_of_the_training_text_from_the_beginning_of_a_line(line_end):
    head = model(3, cache=True, length=WINDOWS[-1], line_end=line_end).head
    assert head.windows == [50, 100, 200, 500, 1000, 2000]  # others would be another model under the same id
    cut = len(TRAIN) - len(TRAIN) // 10
    while line_end is not None and TRAIN[cut - 1] != line_end:
        cut -= 1
    assert best(TRAIN[:cut], TRAIN[cut:], line_end) == (int(head.cache_window), float(head.cache_weight))
    assert len(head.text) == len(TRAIN)  # n-grams of all of it are counted then


def test_chunks_of_the_held_out_text_change_nothing(monkeypatch):
    whole = model(3, cache=True).head
    monkeypatch.setattr(kneser_ney, "CHUNK", 50 * 100)
    parts = model(3, cache=True).head
    assert torch.equal(parts.cache_window, whole.cache_window)
    assert float(parts.cache_weight) == pytest.approx(float(whole.cache_weight), abs=1e-12)


def test_ids_of_large_vocabularies_give_the_same():
    """V^2 is beyond int32, in which the text is stored."""
    vocab_size = 10**6
    far = vocab_size - V
    small, large = (
        model(3, vocab_size=vocab_size),
        model(3, vocab_size=vocab_size, train=[far + word for word in TRAIN], line_end=far + END),
    )
    assert torch.equal(scored(large, [far + word for word in VALID]), scored(small, VALID))


def test_new_tensors_are_on_the_device_of_the_text():
    """Another default device stands for a text that is not on the default device."""
    train, valid = torch.tensor(TRAIN), torch.tensor(VALID)
    built = model(3, cache=True)
    hidden, targets = built.backbone(valid[None, :-1]), valid[None, 1:]
    before = built.head(hidden)
    with torch.device("meta"):
        built.head.count(train, END)
        after = built.head(hidden)
        nll, logp = after.nll(targets), after.log_probs()
    assert torch.equal(nll, before.nll(targets))
    assert torch.equal(logp, before.log_probs())


def test_the_length_of_segments_changes_nothing():
    built = model(5, cache=True)
    few, whole = scored(built, VALID, segment=7), scored(built, VALID)
    # an element is not promised the same rounding in tensors of different lengths; nll are below 12
    torch.testing.assert_close(few, whole, rtol=0, atol=rounding.bound(20, 12))


def test_the_backbone_returns_the_last_tokens():
    backbone = LastTokens(9, length=3)
    hidden = backbone(torch.tensor([[4, 5]]))
    n = NO_TOKEN
    assert hidden.layers[0].tolist() == [[[n, n, 4], [n, 4, 5]]]
    assert backbone(torch.tensor([[6]]), hidden.state).layers[0].tolist() == [[[4, 5, 6]]]
    assert sum(parameter.numel() for parameter in backbone.parameters()) == 0


def test_the_state_dict_is_the_whole_model():
    built, other = model(4, cache=True), model(4, cache=True, train=TRAIN[:7000])
    assert not torch.equal(scored(other, VALID), scored(built, VALID))
    other.load_state_dict(built.state_dict())
    fresh = uncounted(order=4, cache=True)
    fresh.load_state_dict(built.head.state_dict())
    assert (fresh.text.dtype, fresh.cache_weight.dtype) == (torch.int32, torch.float64)
    assert torch.equal(scored(LanguageModel(built.backbone, fresh), VALID), scored(built, VALID))
    assert torch.equal(scored(other, VALID), scored(built, VALID))


def test_counting_says_how_many_ngrams_there_are_and_what_the_cache_is():
    oracle, built = Oracle(TRAIN, 4, range(V), END), model(4, cache=True).head
    found = built.count(torch.tensor(TRAIN), END)
    stored = {"stored_ngrams": sum(len(counts) for counts in oracle.counts.values())}
    assert found == stored | {"cache_window": int(built.cache_window), "cache_weight": float(built.cache_weight)}
    assert built.text.dtype == torch.int32
    assert model(4).head.count(torch.tensor(TRAIN), END) == stored


def test_mean_nll_weighs_targets():
    distribution = model()(Segment(x := torch.tensor([[1, 2, 3]]), x))[0]
    assert distribution.aux_loss == 0
    targets, weight = torch.tensor([[2, 3, 4]]), torch.tensor([[1.0, 0.0, 1.0]])
    nll = distribution.nll(targets)[0]
    assert distribution.mean_nll(targets).item() == pytest.approx(nll.mean().item())
    assert distribution.training_loss(targets, weight).item() == pytest.approx((nll[0] + nll[2]).item() / 2)


def uncounted(length=50, width=0, **params):
    return KneserNey(HeadDims(vocab_size=V, layer_dims=(length,), d_embed=width), nn.Embedding(V, width), **params)


REFUSED = {
    "order must be 1 to 50, got 0": lambda: uncounted(order=0),
    "order must be 1 to 50, got 51": lambda: uncounted(order=51),
    "reads token ids and no hidden states": lambda: uncounted(width=8),
    "a cache needs 50 tokens, the backbone has the last 49 only": lambda: uncounted(49, cache=True),
    "has not counted a text": lambda: LanguageModel(LastTokens(V, length=50), uncounted())(Segment(ONE, ONE)),
    "the training split is empty": lambda: model(train=[]),
    "length must be at least 1, got 0": lambda: LastTokens(V, length=0),
    # a text without n-grams of the counts 1, 2 and 3
    r"order 1 cannot be .* training text: 3, 1 and 0 n-grams have the counts": lambda: model(
        1, line_end=None, train=[1, 2, 3, 4, 4]
    ),
    "0, 2 and 1 n-grams have the counts 1, 2 and 3": lambda: discounts(torch.tensor([2, 2, 3])),
    # n1 = 1, n2 = 1, n3 = 3: Y = 1/3, D(2) = 2 - 3 (1/3) 3 = -1
    r"those of the counts 1, 2 and 3 would be 0\.3333, -1, 3": lambda: discounts(torch.tensor([1, 2, 3, 3, 3])),
}


@pytest.mark.parametrize(("told", "attempt"), REFUSED.items(), ids=list(REFUSED))
def test_what_is_refused(told, attempt):
    with pytest.raises(ValueError, match=told):
        attempt()
    assert uncounted(3, order=3).order == 3


def test_penn_treebank_has_the_printed_perplexity(real_data):
    """141.2 of order 5 (Mikolov and Zweig 2012), within 0.3 %."""
    from harness.corpora.published import PennTreebank
    from harness.corpora.vocabulary import line_end

    corpus = PennTreebank().load(real_data)
    built = model(5, vocab_size=corpus.vocab_size, line_end=line_end(corpus), train=corpus.train)
    test = corpus.test.tolist()
    assert scored(built, test, segment=1000).mean().exp().item() == pytest.approx(141.2, rel=0.003)
