"""Gradients through the output matrix, against the equations of each context."""

import pytest
import torch
from subjects import V, loud

from harness.diagnostics import gradients
from harness.diagnostics.diagnostic import NotDefined, Settings
from harness.diagnostics.gradients import compute
from harness.diagnostics.positions import contexts

EXACT = {"rel": 0, "abs": 1e-9}


def residual(g_V, weight_VE):
    """|g|^2 less its part within the columns of the matrix, by least squares."""
    return (g_V - weight_VE @ torch.linalg.lstsq(weight_VE, g_V[:, None]).solution[:, 0]).square().sum()


def by_loops(of, slope=torch.ones_like, phi=lambda z: z):
    """Both shares, from the facets, priors and weights of every context: g_k = r_k (p_k - e) phi'(z_k)."""
    lost, whole = (torch.zeros(2, dtype=torch.float64) for _ in range(2))
    for mixed, part in contexts(of, 40).distributions():
        for n in part.chosen.flatten().nonzero()[:, 0]:
            y = part.targets.flatten()[n]
            pi = torch.ones(1).double() if mixed.log_prior_NK is None else mixed.log_prior_NK[n].exp()
            z = mixed.facets_NFE[n] @ mixed.weight_VE.T + mixed.bias_V
            p, e = phi(z).softmax(-1), torch.eye(V)[y]
            r = pi * p[:, y] / (pi @ p[:, y])
            for which, g in [(0, pi @ p - e), *((1, r[k] * (p[k] - e) * slope(z[k])) for k in range(len(pi)))]:
                lost[which] += residual(g, mixed.weight_VE)
                whole[which] += g.square().sum()
    return (lost / whole).tolist()


CAPPED = ((lambda z: 1 - torch.tanh(z / 2) ** 2), (lambda z: 2 * torch.tanh(z / 2)))


@pytest.mark.parametrize("at_once", [gradients.TOKENS_AT_ONCE, 3])
@pytest.mark.parametrize(
    ("head", "params", "bent"),
    [("softmax", {}, ()), ("mos", {"num_mixtures": 3, "prior_bias": True}, ()), ("softmax", {"softcap": 2.0}, CAPPED)],
)
def test_shares_equal_the_loops(head, params, bent, at_once, monkeypatch):
    monkeypatch.setattr(gradients, "TOKENS_AT_ONCE", at_once)
    of = loud(head, **params)
    found = compute(of, Settings(contexts=40))
    assert [found.outside, found.outside_of_logits] == pytest.approx(by_loops(of, *bent), **EXACT)
    assert 0 < found.outside < 1
    assert found.contexts == 40


def test_partitions_have_their_rows_of_the_matrix_only():
    """With a facet for each word nothing is lost on the way to the facets."""
    of = loud("mfs", num_mixtures=1, num_input_layers=1, window=0, num_partitions=V)
    found = compute(of, Settings(contexts=40))
    assert found.outside_of_logits == pytest.approx(0, abs=1e-12)
    assert found.outside > 0


def test_a_head_without_an_output_matrix_has_no_result():
    with pytest.raises(NotDefined, match="head adaptive has no output matrix"):
        compute(loud("adaptive"), Settings(contexts=40))
