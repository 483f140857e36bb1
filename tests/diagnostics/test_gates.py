"""Gates, responsibilities, shares of the loss and facets, against plain loops over the equations."""

import math

import pytest
import torch
from subjects import LSTM, loud, softmax, subject

from harness.diagnostics.diagnostic import NotDefined, Settings
from harness.diagnostics.gates import compute
from harness.diagnostics.positions import contexts
from harness.plan.specs import ComponentSpec

EXACT = {"rel": 0, "abs": 1e-9}


def by_loops(of) -> dict[str, object]:
    """The numbers of the diagnostic, from the gates, facets and weights of every context."""
    counts = of.corpus.token_counts.tolist()
    gates, responsibilities, losses, cosines, frequency = [], [], [], [], []
    for mixed, part in contexts(of, 40).distributions():
        K = mixed.facets_NFE.shape[1]
        W, b = mixed.weight_VE.tolist(), mixed.bias_V.tolist()
        for n in part.chosen.flatten().nonzero()[:, 0].tolist():
            y = int(part.targets.flatten()[n])
            facets = mixed.facets_NFE[n].tolist()
            pi = [math.exp(value) for value in mixed.log_prior_NK[n].tolist()]
            p = [
                softmax([sum(f * w for f, w in zip(facet, row, strict=True)) + c for row, c in zip(W, b, strict=True)])[
                    y
                ]
                for facet in facets
            ]
            total = sum(pi[k] * p[k] for k in range(K))
            gates.append(pi)
            responsibilities.append([pi[k] * p[k] / total for k in range(K)])
            losses.append(-math.log(total))
            frequency.append(counts[y])
            for i in range(K):
                for j in range(i + 1, K):
                    dot = sum(a * c for a, c in zip(facets[i], facets[j], strict=True))
                    cosines.append(dot / (math.hypot(*facets[i]) * math.hypot(*facets[j])))
    N, K = len(gates), len(gates[0])
    mean_gate = [sum(pi[k] for pi in gates) / N for k in range(K)]
    mean = sum(cosines) / len(cosines)
    low = [r for r, count in zip(responsibilities, frequency, strict=True) if 1 <= count <= 9]
    high = [r for r, count in zip(responsibilities, frequency, strict=True) if 10 <= count <= 99]
    band = [tuple(sum(r[k] for r in rs) / len(rs) for k in range(K)) if rs else None for rs in (low, high)]
    return {
        "gate_entropy": sum(-sum(q * math.log(q) for q in pi) for pi in gates) / N,
        "used": math.exp(-sum(q * math.log(q) for q in mean_gate)),
        "mean_gate": tuple(mean_gate),
        "responsibility": tuple(sum(r[k] for r in responsibilities) / N for k in range(K)),
        "nll_share": tuple(
            sum(r[k] * nll for r, nll in zip(responsibilities, losses, strict=True)) / sum(losses) for k in range(K)
        ),
        "facet_cosine": mean,
        "facet_cosine_sd": math.sqrt(sum((c - mean) ** 2 for c in cosines) / (len(cosines) - 1)),
        "bands": [each for each in band if each],
    }


def test_all_numbers_equal_the_loops():
    of = loud("mos", num_mixtures=3, prior_bias=True)
    found, expected = compute(of, Settings(contexts=40)), by_loops(of)
    bands = expected.pop("bands")
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, **EXACT), name
    for name in ("mean_gate", "responsibility", "nll_share"):
        assert sum(getattr(found, name)) == pytest.approx(1)
    assert found.contexts == sum(band.contexts for band in found.bands) == 40
    assert [band.responsibility for band in found.bands] == [pytest.approx(each, **EXACT) for each in bands]


def test_a_gate_that_is_shut_is_a_dead_component():
    of = loud("mos", num_mixtures=3, prior_bias=True)
    with torch.no_grad():
        of.model.head.prior.weight.zero_()
        of.model.head.prior.bias.copy_(torch.tensor([0.0, 0.0, -40.0]))
    found = compute(of, Settings(contexts=40))
    # two components share everything evenly
    assert found.dead == 1
    assert found.used == pytest.approx(2)
    assert found.gate_entropy == pytest.approx(math.log(2))
    assert found.nll_share[2] < 1e-9


@pytest.mark.parametrize(
    "head",
    [
        ComponentSpec(name="softmax"),
        ComponentSpec(name="moc", params={"num_mixtures": 3}),
        ComponentSpec(name="mixtape"),
    ],
)
def test_one_softmax_has_no_gates_whatever_it_mixes_before(head):
    why = "has one softmax with one facet, so no softmaxes are mixed"
    if head.name == "mixtape":
        why = ".*no mixture of softmaxes over one output matrix"
    with pytest.raises(NotDefined, match=f"head {head.name} {why}"):
        compute(subject(LSTM, head=head), Settings(contexts=40))
