"""`bench sample`, `extras` and `plan-memory`: what is measured, and tables that say what is in the record."""

import pytest
import torch

from harness.benchmarks import decoding, extras
from harness.benchmarks.plan_memory import PlannedStep, PlannedSteps
from harness.benchmarks.settings import SETTINGS
from harness.plan.components import count


def test_the_backbones_have_the_same_number_of_parameters_within_one_percent():
    counts = [count(decoding.VOCAB, spec, decoding.SOFTMAX)[0] for spec in decoding.equal_sizes()]
    assert counts == [pytest.approx(counts[0], rel=0.01)] * 3


def test_the_table_has_medians_of_the_rounds(monkeypatch):
    monkeypatch.setattr(decoding, "LENGTHS", (3, 5))
    monkeypatch.setattr(decoding, "REFERENCE", ("gpt2", {"num_layers": 1, "num_heads": 1}, 16))
    (measured,) = decoding.measure("sample", rounds=2)
    assert [each.goes_on_by for each in measured.writings][1:] == ["its state", "computing all again"]
    assert all(len(each.rates[length]) == 2 for each in measured.writings for length in (3, 5))
    one = measured.writings[0].model_copy(update={"rates": {3: (10.0, 20.0, 60.0), 5: (8.0, 8.0, 8.0)}})
    two = measured.writings[1].model_copy(update={"rates": {3: (50.0, 10.0, 90.0), 5: (4.0, 4.0, 4.0)}})
    known = measured.model_copy(update={"writings": (one, two)})
    ((_, *rows),) = known.tables()
    assert [row[3:] for row in rows] == [["20 (1.00x)", "8 (1.00x)"], ["50 (2.50x)", "4 (0.50x)"]]


TINY = SETTINGS["tiny"]


def test_the_table_has_medians_and_ratios_within_a_round():
    (measured,) = extras.measure("extras", setting="tiny", rounds=2)
    assert all(len(each.milliseconds) == 2 for each in measured.passes)
    assert [each.num_mixtures for each in measured.passes] == [1] * 8 + [3] * 8
    plain = extras.Pass(num_mixtures=1, what="a", extra="plain", milliseconds=(10.0, 20.0, 30.0))
    other = extras.Pass(num_mixtures=1, what="a", extra="soft cap", milliseconds=(11.0, 40.0, 33.0))
    ((_, *rows),) = measured.model_copy(update={"passes": (plain, other)}).tables()
    # ratios of rounds: 1.1, 2, 1.1
    assert rows == [["1", "a", "plain", "20.0", "1.00"], ["1", "a", "soft cap", "33.0", "1.10"]]


@pytest.mark.parametrize("num_mixtures", extras.MIXTURES)
def test_the_passes_are_the_distributions_own(num_mixtures, monkeypatch):
    called = []
    for name in ("training_loss", "nll", "statistics"):
        method = getattr(extras.Mixture, name)

        def noted(self, *given, name=name, method=method):
            called.append((name, self.logit_map, self.z_loss, torch.is_grad_enabled()))
            return method(self, *given)

        monkeypatch.setattr(extras.Mixture, name, noted)
    for call in extras.passes(TINY, num_mixtures).values():
        call()
    plain, cap, sigsoftmax = extras.MAPS.values()
    assert called == [
        *(("training_loss", phi, 0.0, True) for phi in (plain, cap, sigsoftmax)),
        ("training_loss", plain, extras.Z_LOSS, True),
        *(("nll", phi, 0.0, False) for phi in (plain, cap, sigsoftmax)),
        ("statistics", plain, 0.0, True),
    ]


@pytest.mark.parametrize(
    ("pairs", "holds"),
    [([(100, 81), (100, 130)], True), ([(100, 100), (100, 79)], False), ([(100, 135)], False)],  # 1.27, 0.74 times
)
def test_the_verdict_is_that_of_every_step(pairs, holds):
    steps = [PlannedStep(size="tiny", head="softmax", planned=p, measured=m, kept=1.25 * m) for p, m in pairs]
    measured = PlannedSteps(device="a processor", torch="2.13.0", commit="abc", started="today", steps=tuple(steps))
    assert measured.holds == holds
    assert ("NOT every plan is." in measured.markdown()) != holds
    assert measured.tables()[0][1][2] == "100"
