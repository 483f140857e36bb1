"""`bench plan-memory`: what its table says follows from the record."""

import pytest

from harness.benchmarks.plan_memory import PlannedStep, PlannedSteps


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
