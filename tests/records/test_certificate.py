"""Certificates: each rule has its limit and its sentence."""

import math

import handmade
import pytest
from pydantic import ValidationError

from harness.records.record import LOWEST_NLL, MEAN_GAP, NLL_GAP, SUM_ERROR

LIMITS = {"sum_error": SUM_ERROR, "nll_gap": NLL_GAP, "mean_gap": MEAN_GAP}
SAID = {
    "sum_error": "do not sum to 1",
    "nll_gap": "counted for a token is not -log_probs of its target",
    "mean_gap": "counted for a token is, on average, not -log_probs of its target",
}


def test_a_certificate_whose_sizes_are_those_of_rounding_has_no_fault():
    assert handmade.certificate().fault is None


@pytest.mark.parametrize("name", LIMITS)
def test_a_size_may_be_at_its_limit_and_not_above_it(name):
    assert handmade.certificate(**{name: LIMITS[name]}).fault is None
    fault = handmade.certificate(**{name: 1.01 * LIMITS[name]}).fault
    assert SAID[name] in fault
    assert f"{1.01 * LIMITS[name]:.4g} (allowed: {LIMITS[name]:.4g})" in fault


@pytest.mark.parametrize("name", LIMITS)
def test_a_size_that_is_no_finite_number_is_a_fault(name):
    fault = handmade.certificate(**{name: None}).fault
    assert SAID[name] in fault
    assert fault.endswith("no finite number")


def test_no_nll_is_below_zero_by_more_than_rounding():
    assert handmade.certificate(lowest_nll=LOWEST_NLL).fault is None
    assert "is -2e-05: below 0" in handmade.certificate(lowest_nll=-2e-5).fault
    assert handmade.certificate(lowest_nll=None).fault == "the nll of a test token is not a finite number"


def test_a_head_that_adds_epsilon_to_every_word_may_sum_to_that_much_more():
    # V epsilon = 0.5; -log(1 + 0.01) = -0.00995 is the nll of a word that the head is sure of
    sure = {"vocab_size": 50, "log_epsilon": 0.01, "lowest_nll": -math.log1p(0.01)}
    assert handmade.certificate(**sure, sum_error=0.5).fault is None
    assert "(allowed: 0.5001)" in handmade.certificate(**sure, sum_error=0.502).fault
    assert "below 0" in handmade.certificate(**{**sure, "lowest_nll": -0.0101}).fault


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": 0},
        {"sum_error": -1.0},
        {"nll_gap": math.inf},
        {"later_change": 1e-9},
        {"lowest_nll": -math.inf},
        {"log_epsilon": 1.0},
        {"vocab_size": 0},
    ],
)
def test_what_no_check_can_have_found_is_no_certificate(changes):
    with pytest.raises(ValidationError):
        handmade.certificate(**changes)
