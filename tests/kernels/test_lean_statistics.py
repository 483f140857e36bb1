"""Statistics of a token against the dense distribution in float64, over several chunks, at odd sizes."""

import contextlib
import math

import pytest
import torch
from dense_mixtures import CASES, chunks_of, dense_logits, mixture, tensors

from harness.distributions import Logits, Mixture, log_prior
from harness.kernels import reference_only, token_statistics
from harness.kernels.chunked import Lean


@pytest.fixture(autouse=True)
def _several_chunks(monkeypatch):
    chunks_of(monkeypatch, 64)


def dense(inputs, partitions, logit_map):
    """(log Z (N, K), p (N, V)) in float64."""
    facets, scores, weight, bias = [None if tensor is None else tensor.detach().double() for tensor in inputs]
    u = dense_logits(facets, weight, bias, partitions, logit_map)
    prior = torch.ones(1, 1) if scores is None else scores.softmax(-1)
    return u.logsumexp(-1), (prior[..., None] * u.softmax(-1)).sum(1)


def assert_statistics(found, log_z, p, tolerance):
    entropy = -(p * p.log()).sum(-1)
    for ours, expected in ((found.log_normaliser, log_z), (found.entropy, entropy), (found.top_logp, p.amax(-1).log())):
        torch.testing.assert_close(ours.double(), expected, rtol=0, atol=tolerance)
    at_top = p.gather(-1, found.top[:, None])[:, 0]
    torch.testing.assert_close(at_top, p.amax(-1), rtol=tolerance, atol=0)


def flat(found):
    return type(found)(*(values.flatten(0, 1) for values in found))


@pytest.mark.parametrize(
    ("evaluation", "dtype", "tolerance"),
    [
        (contextlib.nullcontext, torch.float64, 1e-12),
        (contextlib.nullcontext, torch.float32, 2e-5),
        (reference_only, torch.float64, 1e-12),
    ],
    ids=["lean", "lean in float32", "plain equations"],
)
@pytest.mark.parametrize("case", CASES)
def test_statistics_equal_those_of_the_dense_distribution(case, evaluation, dtype, tolerance):
    partitions, logit_map, *rest = case
    *inputs, _, _ = tensors(partitions, *rest, dtype=dtype)
    with evaluation():
        found = mixture(*inputs, partitions, logit_map, log_epsilon=0.01).statistics()
    assert found.entropy.shape == (1, rest[2])
    assert found.log_normaliser.shape == (1, rest[2], len(partitions))
    assert not any(values.requires_grad for values in found)
    assert_statistics(flat(found), *dense(inputs, partitions, logit_map), tolerance)


@pytest.mark.parametrize("case", CASES)
def test_a_few_tokens_at_a_time_give_the_same(case, monkeypatch):
    partitions, logit_map, *rest = case
    *inputs, _, _ = tensors(partitions, *rest)
    whole = mixture(*inputs, partitions, logit_map).statistics()
    for few in (1, 3):
        monkeypatch.setattr(token_statistics, "tokens_at_once", lambda *blocks, few=few: few)
        monkeypatch.setattr(Lean, "mapped_at_once", lambda self, blocks, few=few: few + 1)
        found = mixture(*inputs, partitions, logit_map).statistics()
        assert_statistics(flat(found), *dense(inputs, partitions, logit_map), 1e-12)
        assert torch.equal(found.top, whole.top)


def test_a_map_that_the_lean_form_does_not_know_and_logits_give_the_same():
    *inputs, _, _ = tensors((1, 1), True, True, 150, 9)
    facets, scores, weight, bias = inputs
    found = Mixture(facets[None], log_prior(scores)[None], weight, bias, logit_map=lambda z: 0.5 * z).statistics()
    assert_statistics(flat(found), *dense([0.5 * facets, scores, weight, 0.5 * bias], (1, 1), "identity"), 1e-12)
    *inputs, _, _ = tensors((1,), True, False, 30, 9)
    facets, _, weight, bias = inputs
    found = Logits((facets[:, 0] @ weight.T + bias)[None]).statistics()
    assert_statistics(flat(found), *dense(inputs, (1,), "identity"), 1e-12)
    found = Logits(torch.tensor([[[0.0, 0.0, -math.inf]]])).statistics()  # an impossible word
    assert [found.entropy.item(), found.top_logp.item()] == pytest.approx([math.log(2), -math.log(2)], abs=1e-6)


@pytest.mark.parametrize("num_words", [1, 3, 4, 5, 8, 11])
def test_of_equally_probable_words_the_first_is_the_top(num_words):
    values = torch.randint(3, (40, num_words), generator=torch.Generator().manual_seed(num_words)).float()  # many ties
    found = Mixture(values[None, :, None], None, torch.eye(num_words)).statistics()
    assert found.top[0].tolist() == [row.index(max(row)) for row in values.tolist()]


@pytest.mark.parametrize("num_mixtures", [1, 2])
def test_certain_and_impossible_words(num_mixtures):
    # logits 0, -2e4 and -inf: one word is certain, its entropy is 0
    bias = torch.tensor([-2e4, 0.0, -math.inf])
    prior = None if num_mixtures == 1 else torch.zeros(1, 1, 2).log_softmax(-1)
    found = Mixture(torch.zeros(1, 1, num_mixtures, 2), prior, torch.zeros(3, 2), bias).statistics()
    assert found.top.tolist() == [[1]]
    assert [found.entropy.item(), found.top_logp.item()] == pytest.approx([0, 0], abs=1e-6)
    assert found.log_normaliser.abs().max() == 0


@pytest.mark.parametrize("num_mixtures", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])  # 5001 is no number of bfloat16
def test_equal_words_have_the_entropy_log_v(num_mixtures, dtype):
    prior = None if num_mixtures == 1 else torch.zeros(1, 2, 3).log_softmax(-1)
    facets, weight = torch.zeros(1, 2, num_mixtures, 4, dtype=dtype), torch.ones(5001, 4, dtype=dtype)
    found = Mixture(facets, prior, weight).statistics()
    assert found.entropy.dtype == torch.float32
    assert found.entropy.flatten().tolist() == pytest.approx([math.log(5001)] * 2, rel=1e-5)
    assert found.top_logp.flatten().tolist() == pytest.approx([-math.log(5001)] * 2, rel=1e-5)
    assert found.top.tolist() == [[0, 0]]


def test_no_tokens_have_no_statistics():
    found = Mixture(torch.zeros(1, 0, 1, 4), None, torch.ones(5, 4)).statistics()
    assert [tuple(values.shape) for values in found] == [(1, 0, 1), (1, 0), (1, 0), (1, 0)]
