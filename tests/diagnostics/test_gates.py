"""Gates, responsibilities, shares of the loss and facets, against the equations of each context."""

import math

import pytest
import torch
from subjects import LSTM, loud, subject

from harness.diagnostics.diagnostic import NotDefined, Settings
from harness.diagnostics.gates import compute
from harness.diagnostics.positions import contexts
from harness.plan.specs import ComponentSpec

EXACT = {"rel": 0, "abs": 1e-9}


def by_loops(of) -> dict[str, object]:
    """The numbers of the diagnostic, from the gates, facets and weights of every context."""
    counts, gates, responsibilities, losses, cosines, frequency = of.corpus.token_counts, [], [], [], [], []
    for mixed, part in contexts(of, 40).distributions():
        for n in part.chosen.flatten().nonzero()[:, 0]:
            y, facets, pi = part.targets.flatten()[n], mixed.facets_NFE[n], mixed.log_prior_NK[n].exp()
            p = (facets @ mixed.weight_VE.T + mixed.bias_V).softmax(-1)[:, y]
            gates.append(pi)
            responsibilities.append(pi * p / (pi @ p))
            losses.append(-(pi @ p).log())
            frequency.append(counts[y])
            for i, j in ((0, 1), (0, 2), (1, 2)):
                cosines.append(torch.dot(facets[i], facets[j]) / (facets[i].norm() * facets[j].norm()))
    gate_NK, r_NK, nll_N, cosine_C, count_N = map(torch.stack, (gates, responsibilities, losses, cosines, frequency))
    bands = [r_NK[(low <= count_N) & (count_N < 10 * low)] for low in (1, 10)]
    return {
        "gate_entropy": -(gate_NK * gate_NK.log()).sum(1).mean().item(),
        "used": math.exp(-sum(q * math.log(q) for q in gate_NK.mean(0).tolist())),
        "mean_gate": tuple(gate_NK.mean(0).tolist()),
        "responsibility": tuple(r_NK.mean(0).tolist()),
        "nll_share": tuple(((r_NK * nll_N[:, None]).sum(0) / nll_N.sum()).tolist()),
        "facet_cosine": cosine_C.mean().item(),
        "facet_cosine_sd": cosine_C.std().item(),
        "bands": [tuple(each.mean(0).tolist()) for each in bands if len(each)],
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
