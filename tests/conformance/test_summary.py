"""Outcomes and their summary: errors by name, the worst over the variants, failures, threads."""

import pytest
import rounding
import torch
from torch import nn

from harness.conformance import conformance, summary
from harness.conformance.heads import HEAD_CHECKS
from harness.distributions import Logits
from harness.registry import HEADS

AGREE = "nll, mean_nll and log_probs agree"
ROUNDING = {"rel": 0, "abs": rounding.bound(13, 3)}  # of an nll of up to 3, a sum over 13 words: 7e-14


class Plain(nn.Module):
    """A correct head."""

    def __init__(self, dims, embedding):
        super().__init__()
        self.output = nn.Linear(dims.layer_dims[-1], dims.vocab_size)

    def forward(self, hidden):
        return Logits(self.output(hidden.layers[-1]))


class Shifted(Plain):
    """Its nll is off by `more` or `less`, both within the tolerance of 1e-12."""

    LESS, MORE = 2e-13, 8e-13

    def __init__(self, dims, embedding, *, more: bool = False):
        super().__init__(dims, embedding)
        self.by = self.MORE if more else self.LESS

    def forward(self, hidden):
        distribution = super().forward(hidden)
        exact = distribution.nll
        distribution.nll = lambda targets: exact(targets) + self.by
        return distribution


@pytest.fixture
def named(monkeypatch):
    """Registers a class under a name for the length of a test."""
    return lambda name, cls: monkeypatch.setitem(HEADS._classes, name, cls)


def test_an_outcome_keeps_its_errors_by_name_and_shows_them(named):
    named("shifted", Shifted)
    (outcome,) = [o for o in conformance("shifted")[1] if o.check == AGREE and o.variant == "defaults"]
    assert set(outcome.errors) == {"nll", "mean_nll", "weighted mean_nll"}
    assert outcome.errors["nll"] == pytest.approx(2e-13, **ROUNDING)
    assert outcome.detail.startswith("nll 2e-13, mean_nll ")
    assert str(outcome) == f"{AGREE} [defaults]: {outcome.detail}"


def test_the_first_variant_is_named_by_the_values_that_were_given():
    outcomes = conformance("softmax", {"projection": True, "bias": False})[1]
    assert outcomes[0].variant == "projection=True, bias=False"
    assert "defaults" not in {outcome.variant for outcome in outcomes}


def test_every_other_choice_of_a_parameter_is_a_variant():
    assert list(dict.fromkeys(outcome.variant for outcome in conformance("mos")[1])) == [
        "defaults",
        "dropout_mask=sequence",
        "activation=none",
        "prior_bias=True",
        "bias=False",
        "tie_weights=True",
        "logit_map=sigsoftmax",
        "logit_map=stablemax",
        "gate=constant",
        "gate=static",
        "loss=binary",
        "init_bias=uniform",
        "start=identity",
        "start=embedding",
        "start=pretrained",
    ]


def test_summary_has_the_worst_error_of_each_check_over_all_variants(named):
    named("shifted", Shifted)
    found = summary("shifted")
    assert found.name == "shifted"
    assert found.variants == 2
    assert found.checks == 2 * len(HEAD_CHECKS)
    assert set(found.worst) == {"probabilities sum to 1", AGREE, "rows are independent", "statistics", "gradients"}
    assert found.worst[AGREE] == pytest.approx(8e-13, **ROUNDING)
    assert 0 < found.worst["probabilities sum to 1"] <= 1e-5
    assert found.failures == []
    assert found.seconds > 0


def test_a_failed_check_counts_and_has_no_error_among_the_worst(named):
    class Wrong(Shifted):
        LESS = MORE = 1e-6

    named("wrong", Wrong)
    found = summary("wrong")
    wrong = "nll differs from log_probs by 1.0e-06"
    assert found.failures == [f"{AGREE} [{variant}]: {wrong}" for variant in ("defaults", "more=True")]
    assert found.checks == 2 * len(HEAD_CHECKS)
    assert AGREE not in found.worst


def test_after_a_failure_that_explains_the_others_they_are_not_run(named):
    class Raises(Plain):
        def __init__(self, dims, embedding, *, raises: bool = True, early: bool = False):
            super().__init__(dims, embedding)
            self.raises = raises
            if early:
                raise KeyError("early\nand more")

        def forward(self, hidden):
            return None if self.raises else super().forward(hidden)

    named("raises", Raises)
    (outcome,) = conformance("raises")[1]
    # the other checks of the defaults; that raises=False and early=True are not tried is said without a number
    assert (outcome.check, outcome.ok, outcome.not_run, outcome.ends) == ("shapes", False, len(HEAD_CHECKS) - 1, True)
    assert summary("raises").not_run == outcome.not_run
    (outcome,) = conformance("raises", {"early": True})[1]
    assert (outcome.check, outcome.ok, outcome.not_run) == ("construction", False, len(HEAD_CHECKS))
    assert outcome.detail.startswith("KeyError: 'early")
    assert "\n" not in outcome.detail


def test_a_variant_that_fails_does_not_keep_the_next_from_being_checked(named):
    class Raises(Plain):
        def __init__(self, dims, embedding, *, raises: bool = False, other: bool = False):
            super().__init__(dims, embedding)
            self.raises = raises

        def forward(self, hidden):
            return None if self.raises else super().forward(hidden)

    named("raises", Raises)
    outcomes = conformance("raises")[1]
    assert [(o.variant, o.check, o.not_run, o.ends) for o in outcomes if not o.ok] == [
        ("raises=True", "shapes", len(HEAD_CHECKS) - 1, False)
    ]
    assert [o.check for o in outcomes if o.variant == "other=True"] == list(HEAD_CHECKS)


def test_a_head_that_needs_parameters_or_refuses_its_defaults_is_a_failure_that_says_so(named):
    class Needy(Plain):
        def __init__(self, dims, embedding, *, width: int):
            super().__init__(dims, embedding)

    class Picky(Plain):
        def __init__(self, dims, embedding):
            raise ValueError("not on such a backbone")

    named("picky", Picky)
    assert summary("picky").failures == ["head 'picky' cannot be built: not on such a backbone"]
    named("needy", Needy)
    found = summary("needy")
    assert (found.variants, found.checks, found.worst) == (0, 0, {})
    assert found.failures == ["'needy' needs --set width=..., because it has no default (it takes: width: int)"]
    assert found.seconds > 0


@pytest.mark.parametrize("fails", [False, True])
def test_conformance_runs_on_one_thread_and_puts_the_number_back(named, fails):
    seen = set()

    class Watches(Plain):
        def __init__(self, dims, embedding):
            super().__init__(dims, embedding)
            seen.add(torch.get_num_threads())
            if fails:
                raise ValueError("not here")

        def forward(self, hidden):
            seen.add(torch.get_num_threads())
            return super().forward(hidden)

    named("watches", Watches)
    torch.set_num_threads(2)
    assert len(summary("watches").failures) == fails
    assert seen == {1}
    assert torch.get_num_threads() == 2


def test_conformance_leaves_the_random_numbers_as_they_were(named):
    named("plain", Plain)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    conformance("plain")
    assert torch.equal(torch.rand(2), expected)
