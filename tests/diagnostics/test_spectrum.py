"""The ranks of heads with random weights are those that follow from their equations."""

import json
from types import SimpleNamespace

import pytest
import torch
from matrices import draw
from torch import nn

from harness.diagnostics import spectrum
from harness.diagnostics.diagnostic import NotDefined
from harness.diagnostics.positions import Contexts, Scored
from harness.diagnostics.singular_values import Spectra, Values
from harness.diagnostics.spectrum import of_contexts
from harness.distributions import Logits
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS

N, V, D = 300, 400, 6


def contexts(head) -> Contexts:
    """N contexts with random states of width D, in two parts."""
    parts = [
        Scored(
            Hidden((draw(3, N // 6, D, seed=seed),)),
            torch.zeros(3, N // 6, dtype=torch.int64),
            torch.ones(3, N // 6) > 0,
        )
        for seed in (1, 2)
    ]
    return Contexts(SimpleNamespace(head=head, head_name="head tried"), tuple(parts))


def spectra(head):
    return of_contexts(contexts(head), V, seed=0)


def built(name: str, d_embed: int = D, **params) -> nn.Module:
    """A head for states of width D, with normal weights in float64."""
    torch.manual_seed(5)
    dims = HeadDims(vocab_size=V, layer_dims=(D,), d_embed=d_embed, token_counts=torch.ones(V))
    head = HEADS.get(name)(dims, nn.Embedding(V, d_embed), **params).double().eval()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return head


@pytest.mark.parametrize(
    ("head", "rank"),
    [
        (built("softmax", bias=False), D + 1),
        (built("softmax", bias=True), D + 2),
        (built("softmax", bias=True, projection=True, d_embed=3), 3 + 2),
        # an affine map of a state of width D, one wider than it: the facets are in a space of D + 1 dimensions
        (built("softmax", bias=False, projection=True, d_embed=9), D + 2),
        # P d + 1 = 25 with 4 facets of width 6; all are affine maps of a state of width 6
        (built("mfs", num_mixtures=1, num_partitions=4, num_input_layers=1, window=0), D + 2),
    ],
)
def test_one_softmax_has_the_rank_of_its_bound(head, rank):
    found = spectra(head)
    assert (found.contexts, found.vocabulary) == (N, V)
    assert (found.bound, found.raw.press, found.centred.press) == (rank, rank, rank - 1)
    assert found.raw.press_is_exact
    assert found.centred.press_is_exact


@pytest.mark.parametrize(
    "head", [built("mos", num_mixtures=2), built("sigsoftmax"), built("softmax", softcap=2.0), built("gss")]
)
def test_mixtures_and_bent_logits_are_above_the_rank_of_a_softmax_and_have_no_bound(head):
    found = spectra(head)
    assert found.bound is None
    assert found.raw.press > 10 * (D + 2)
    assert found.raw.press_is_exact
    assert spectra(built("softmax", compat={"log_epsilon": 1e-8})).bound is None


def test_a_head_that_gives_probability_zero_is_refused_in_a_sentence():
    def head(hidden: Hidden) -> Logits:
        z_BTV = hidden.layers[-1] @ draw(D, V, seed=3)
        z_BTV[..., 7] = -torch.inf
        return Logits(z_BTV)

    with pytest.raises(NotDefined, match="head tried gives a word probability 0, so the matrix of log-probabilities"):
        spectra(head)


# the tolerance for 300 x 400 is sqrt(701) eps / 2, some 2.9e-15 of the largest
@pytest.mark.parametrize(
    ("raw", "centred", "limit", "press", "exact"),
    [
        # 1e4 x 2.9e-15 = 2.9e-11: two centred values above it, of which the raw matrix resolved one
        ([1e4], [1.0, 1e-5, 1e-11], 2e-7, 2, False),
        # the raw matrix resolved more values than the centred one has
        ([1e4, 1.0, 0.1], [1.0, 1e-5], 2e-7, 3, False),
        # as many as the bound allows
        ([1e4, 1.0], [1.0, 1e-5, 1e-6, 1e-7], 2e-7, 4, True),
        # all values are resolved: the centred ones change nothing
        ([1e4, 1.0], [1.0, 1e-5, 1e-6, 1e-7], 0.0, 2, True),
    ],
)
def test_the_raw_rank_is_at_least_what_the_centred_values_prove(monkeypatch, raw, centred, limit, press, exact):
    values = [Values(torch.tensor(each, dtype=torch.float64), limit) for each in (raw, centred)]
    monkeypatch.setattr(spectrum.singular_values, "spectra", lambda *given, **more: Spectra(*values, "gram"))
    monkeypatch.setattr(spectrum, "rank_bound", lambda found: 4)
    found = spectra(built("softmax")).raw
    assert (found.press, found.press_is_exact) == (press, exact)
    assert found.values == tuple(raw)


def test_results_of_earlier_code_are_read():
    """Some of them have flags of effective ranks, which were exact."""
    part = {"values": [2.0, 1.0], "limit": 0.0, "press": 2, "press_is_exact": True, "effective": [2, 2, 2]}
    kept = {"contexts": 3, "vocabulary": 4, "bound": None, "way": "qr", "raw": part, "centred": part}
    for each in (kept["raw"], kept["centred"]):
        each["entropy"] = 1.9
    kept["raw"]["effective_is_exact"] = [True, True, True]
    found = spectrum.Spectra.model_validate_json(json.dumps(kept))
    assert found.raw.effective == found.centred.effective == (2, 2, 2)
