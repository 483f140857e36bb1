"""Every form of the loss, with gradients and statistics, against float64 loops: any shape, map, type and chunk."""

import contextlib
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import oracles
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.distributions import LOGIT_MAPS, Bend, Mixture, SigmoidCap, SoftCap, log_prior
from harness.kernels import chunked, forms, reference_only, rows, token_statistics
from harness.kernels.choice import FormChoice, using
from harness.kernels.products import Products
from harness.kernels.products import using as products

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.02}  # relative to the largest number
CAP = {"a": 4.0, "b": 0.5, "c": 1.5}
MAPS = {  # name: (ours, that of the loops); `learned` has a slope that is trained
    **{name: (LOGIT_MAPS[name], oracles.LOGIT_MAPS[name]) for name in ("identity", "sigsoftmax", "stablemax")},
    "bend": (Bend(c=-0.5, k=2.5), partial(oracles.gss_logit, c=-0.5, k=2.5)),
    "softcap": (SoftCap(1.5), partial(oracles.softcap_logit, c=1.5)),
    "sigmoid cap": (SigmoidCap(**CAP), partial(oracles.sigmoid_cap_logit, **CAP)),
    "learned": None,
}


def of(*chosen):
    return lambda: using(FormChoice(forms=[*chosen, forms.EQUATIONS]))


FORMS = {
    "lean": contextlib.nullcontext,
    "stored": of(replace(forms.STORED, fits=lambda mixture, gradients: gradients and forms._knows(mixture))),
    "equations in chunks": of(forms.CHUNKS_OF_EQUATIONS),
    "equations": reference_only,
}


CASES = st.builds(  # what a mixture is made of, and how it is evaluated
    SimpleNamespace,
    partitions=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    more_words=st.integers(0, 3),
    num_tokens=st.integers(1, 5),
    width=st.integers(1, 3),
    map=st.sampled_from(list(MAPS)),
    form=st.sampled_from(list(FORMS)),
    dtype=st.sampled_from(list(TOLERANCE)),
    precision=st.sampled_from(["fp32", "bf16"]),
    bias=st.sampled_from([None, "normal", "far", "impossible"]),
    epsilon=st.sampled_from([None, 0.05]),
    z_loss=st.sampled_from([0.0, 0.3]),
    factor=st.sampled_from([1.0, 2.0, 0.0, -1.0]),
    weights=st.sampled_from(["", "given", "asking for a gradient"]),
    chunk=st.integers(1, 9),
    cached=st.integers(1, 4),
    seed=st.integers(0, 99),
)


def tolerance(case):
    is_rounded = case.precision == "bf16" and case.dtype == torch.float32
    return TOLERANCE[torch.bfloat16 if is_rounded else case.dtype]


def tensors(case):
    """Facets, W, prior scores, b, a slope (None where there is none), targets, token weights."""
    generator = torch.Generator().manual_seed(case.seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(case.dtype).requires_grad_()

    N, V, K = case.num_tokens, max(case.partitions) + case.more_words, len(case.partitions)
    targets_N = torch.randint(V, (N,), generator=generator)
    bias_V = None if case.bias is None else normal(V)
    if case.map == "identity" and tolerance(case) < 0.01:
        with torch.no_grad():
            if case.bias == "far":
                bias_V += -5000.0 if case.seed % 2 else 5000.0
            if case.bias == "impossible":
                bias_V[[word for word in range(V) if word not in targets_N.tolist()][::2]] = -torch.inf
    weight_N = torch.randint(4, (N,), generator=generator).to(case.dtype)
    weight_N[0] += 1
    slope = normal() if case.map == "learned" else None
    scores_NK = normal(N, K) if K > 1 else None
    return [
        normal(N, sum(case.partitions), case.width),
        normal(V, case.width),
        scores_NK,
        bias_V,
        slope,
        weight_N,
    ], targets_N


def by_loops(case, facets_NFE, weight_VE, scores_NK, bias_V, slope, targets_N):
    """(log-probabilities [n][x], log Z [n][k], nll [n] with the epsilon)."""
    phi = (lambda z: slope * z) if slope is not None else MAPS[case.map][1]
    words, logp, log_z = range(len(weight_VE)), [], []
    for n in range(case.num_tokens):
        scores, first = [], 0
        for P in case.partitions:
            z = [oracles.dot(facets_NFE[n, first + x % P], weight_VE[x]) for x in words]
            scores.append([phi(z[x] if bias_V is None else z[x] + bias_V[x]) for x in words])
            first += P
        prior = [torch.zeros(())] if scores_NK is None else oracles.log_softmax(list(scores_NK[n]))
        log_z.append([oracles.log_sum_exp(u) for u in scores])
        shares = [p - log for p, log in zip(prior, log_z[n], strict=True)]
        terms = [torch.stack([s + u[x] for s, u in zip(shares, scores, strict=True)]) for x in words]
        logp.append([each.logsumexp(0) for each in terms])  # -inf of an impossible word
    picked = [logp[n][x] for n, x in enumerate(targets_N.tolist())]
    return logp, log_z, [-each if case.epsilon is None else -(each.exp() + case.epsilon).log() for each in picked]


def gradients(value, inputs):
    return torch.autograd.grad(value, inputs, retain_graph=True, allow_unused=True, materialize_grads=True)


@settings(max_examples=60)
@given(CASES)
def test_any_mixture_equals_the_loops(case):
    given, targets_N = tensors(case)
    wide = [None if each is None else each.detach().double().requires_grad_() for each in given]
    asked = [i for i, each in enumerate(given[:5]) if each is not None]
    if case.weights == "asking for a gradient":
        given[5].requires_grad_()
        asked.append(5)
    facets_NFE, weight_VE, scores_NK, bias_V, slope, weight_N = given
    logp, log_z, nll = by_loops(case, *wide[:5], targets_N)
    squares = [case.z_loss * oracles.mean([each**2 for each in of_token]) for of_token in log_z]
    w = wide[5] if case.weights else torch.ones(case.num_tokens).double()
    mean = oracles.dot(nll, w) / sum(w)
    trained = oracles.dot([a + b for a, b in zip(nll, squares, strict=True)], w) / sum(w)
    upstream_N = torch.linspace(-1, 2, case.num_tokens, dtype=torch.float64)
    mixture = Mixture(
        facets_NFE[None],
        None if scores_NK is None else log_prior(scores_NK)[None],
        weight_VE,
        bias_V,
        partitions=case.partitions,
        logit_map=MAPS[case.map][0] if slope is None else lambda z: slope * z,
        log_epsilon=case.epsilon,
    )
    mixture.z_loss = case.z_loss
    targets_BT, weight_BT = targets_N[None], weight_N[None] if case.weights else None
    with pytest.MonkeyPatch.context() as patch, FORMS[case.form](), products(Products(case.precision)):
        patch.setattr(chunked, "CHUNK_BYTES", 0)
        patch.setattr(chunked, "LEAST_ROWS", case.chunk)
        patch.setattr(rows, "CACHED", case.cached * len(weight_VE))
        patch.setattr(token_statistics, "tokens_at_once", lambda *blocks: case.cached)
        found = [
            (mixture.training_loss(targets_BT, weight_BT), trained),
            (case.factor * mixture.mean_nll(targets_BT, weight_BT), case.factor * mean),
            ((upstream_N * mixture.nll(targets_BT)[0]).sum(), oracles.dot(nll, upstream_N)),
        ]
        with torch.no_grad():
            alone = [mixture.nll(targets_BT)[0], mixture.mean_nll(targets_BT, weight_BT), mixture.log_probs()[0]]
        statistics = mixture.statistics()
        assert {each.dtype for each in alone} == {torch.promote_types(case.dtype, torch.float32)}
        pairs = list(zip(alone, [torch.stack(nll), mean], strict=False))
        for ours, theirs in found:
            inputs = [[tensors[i] for i in asked] for tensors in (given, wide)]
            given_back = gradients(ours, inputs[0])
            assert [each.dtype for each in given_back] == [each.dtype for each in inputs[0]]
            pairs += [(ours, theirs), *zip(given_back, gradients(theirs, inputs[1]), strict=True)]
    logp_NV, log_z_NK = (torch.stack([torch.stack(row) for row in each]).detach() for each in (logp, log_z))
    p_NV = logp_NV.exp()
    pairs += [
        (alone[2].exp(), p_NV if case.epsilon is None else p_NV + case.epsilon),
        (statistics.log_normaliser[0], log_z_NK),
        (statistics.entropy[0], -(p_NV * logp_NV).nansum(1)),  # an impossible word adds nothing
        (statistics.top_logp[0], logp_NV.amax(1)),
        (logp_NV.gather(1, statistics.top.T)[:, 0], logp_NV.amax(1)),
    ]
    largest = max(1e4 if case.bias == "far" else 1.0, *(each.abs().max().item() for _, each in pairs))
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=0, atol=tolerance(case) * largest)
