"""`bench extras`: every pass computes what it says, and a table that says what is in the record."""

import pytest
import torch

from harness.benchmarks import extras
from harness.benchmarks.settings import SETTINGS

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
