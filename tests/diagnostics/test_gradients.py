"""Gradients through the output matrix, against plain loops and hand-made cases."""

import math

import pytest
from subjects import V, loud, softmax

from harness.diagnostics import gradients
from harness.diagnostics.diagnostic import NotDefined, Settings
from harness.diagnostics.gradients import compute
from harness.diagnostics.positions import contexts

EXACT = {"rel": 0, "abs": 1e-9}


def residual(g: list[float], columns: list[list[float]]) -> float:
    """|g|^2 less its part within the columns: classical Gram-Schmidt, each column twice."""
    basis = []
    for column in columns:
        left = list(column)
        for _ in range(2):
            for q in basis:
                dot = sum(a * b for a, b in zip(left, q, strict=True))
                left = [a - dot * b for a, b in zip(left, q, strict=True)]
        norm = math.sqrt(sum(a * a for a in left))
        basis.append([a / norm for a in left])
    return sum(a * a for a in g) - sum(sum(a * b for a, b in zip(g, q, strict=True)) ** 2 for q in basis)


def by_loops(of, slope=lambda z: 1.0, phi=lambda z: z):
    """Both shares, from the facets, priors and weights of every context: g_k = r_k (p_k - e) phi'(z_k)."""
    lost, whole = [0.0, 0.0], [0.0, 0.0]
    for mixed, part in contexts(of, 40).distributions():
        W, b = mixed.weight_VE.tolist(), mixed.bias_V.tolist()
        columns = [[row[i] for row in W] for i in range(len(W[0]))]
        for n in part.chosen.flatten().nonzero()[:, 0].tolist():
            y = int(part.targets.flatten()[n])
            facets = mixed.facets_NFE[n].tolist()
            pi = [1.0] if mixed.log_prior_NK is None else [math.exp(value) for value in mixed.log_prior_NK[n].tolist()]
            z = [[sum(f * w for f, w in zip(facet, row, strict=True)) + c for row, c in zip(W, b, strict=True)]
                 for facet in facets]  # fmt: skip
            p = [softmax([phi(value) for value in each]) for each in z]
            total = sum(pi[k] * p[k][y] for k in range(len(pi)))
            mean = [sum(pi[k] * p[k][v] for k in range(len(pi))) - (v == y) for v in range(len(W))]
            every = [(0, mean)]
            for k in range(len(pi)):
                r = pi[k] * p[k][y] / total
                every.append((1, [r * (p[k][v] - (v == y)) * slope(z[k][v]) for v in range(len(W))]))
            for which, g in every:
                lost[which] += residual(g, columns)
                whole[which] += sum(value * value for value in g)
    return [part / all_of for part, all_of in zip(lost, whole, strict=True)]


CAPPED = ((lambda z: 1 - math.tanh(z / 2) ** 2), (lambda z: 2 * math.tanh(z / 2)))


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
