"""Which heads of a suite are controls, and what a plan says of controls that it lacks."""

import handmade
import pytest

from harness import plan
from harness.errors import SuiteError
from harness.plan.controls import NO_AFFINE, NO_PLAIN


@pytest.fixture
def suite(tmp_path):
    """A function: the heads of a suite file, other keys -> the suite."""

    def load(heads, **more):
        path = tmp_path / "suite.yaml"
        path.write_text(handmade.suite_text(heads=heads, seeds="[1]", **more))
        return plan.load(path)

    return load


def controls(suite):
    return list(dict.fromkeys(row.head.name for row in suite.rows if row.is_control))


@pytest.mark.parametrize(
    ("head", "is_control"),
    [
        ("softmax", True),
        ("softmax: {projection: true, bias: false, d_embed: 4}", True),
        ("softmax: {init_range: 0.1}", True),
        ("softmax: {softcap: 30}", False),
        ("softmax: {logit_map: stablemax}", False),
        ("softmax: {z_loss: 0.0001}", False),
        ("softmax: {mu_loss: 0.0001}", False),
        ("softmax: {mu_centering: true}", False),
        ("softmax: {loss: binary}", False),
        ("softmax: {tie_weights: true, input_gradient_scale: 0.5}", False),
        ("softmax: {compat: {log_epsilon: 1.0e-8}}", False),
        ("mos: {num_mixtures: 1}", True),
        ("mos: {num_mixtures: 1, logit_map: sigsoftmax}", False),
        ("mos: {num_mixtures: 1, softcap: 30}", False),
        ("mos: {num_mixtures: 1, loss: binary}", False),
        ("mos: {num_mixtures: 1, compat: {log_epsilon: 1.0e-8}}", False),
        ("mos: {num_mixtures: 2}", False),
        ("moc: {num_mixtures: 1}", True),
        ("moc: {num_mixtures: 1, softcap: 30}", False),
        ("moc: {num_mixtures: 2}", False),
        ("sigsoftmax", False),
        ("multimax", False),
    ],
)
def test_a_control_is_a_plain_softmax_of_the_state(suite, head, is_control):
    (row,) = suite(f"[{{{head}}}]" if ":" in head else f"[{head}]").rows
    assert row.is_control == is_control


def test_tied_weights_are_a_claim_beside_an_untied_control_only(suite):
    tied = "{softmax: {tie_weights: true}}"
    assert controls(suite(f"[{tied}]")) == ["tied softmax"]
    assert controls(suite(f"[softmax, {tied}]")) == ["softmax"]
    assert controls(suite(f"[{{softmax: {{projection: true}}}}, {tied}]")) == ["affine softmax"]


def test_a_suite_may_say_otherwise_which_changes_no_id_and_is_said(suite):
    plain = suite("[softmax, {softmax: {projection: true}}, {mos: {num_mixtures: 2}}]")
    said = suite("[softmax, {softmax: {projection: true, control: false}}, {mos: {num_mixtures: 2, control: true}}]")
    assert [trial.id for trial in said.trials] == [trial.id for trial in plain.trials]
    assert controls(plain) == ["softmax", "affine softmax"]
    assert controls(said) == ["softmax", "MoS 2"]
    assert list(plain.control_notes) == []
    assert list(said.control_notes) == [
        "affine softmax is no control because the suite's file says so",
        "MoS 2 is a control because the suite's file says so",
    ]


def test_a_control_that_is_missing_is_named(suite):
    assert suite("[softmax, {mos: {num_mixtures: 2}}]").control_notes == (NO_AFFINE,)
    affine = "[{softmax: {projection: true}}, {mos: {num_mixtures: 2}}]"
    table = "{baseline: affine softmax}"
    assert suite(affine, table=table).control_notes == (NO_PLAIN,)
    affine_only = "[{softmax: {projection: true}}, {moc: {num_mixtures: 2}}]"
    assert suite(affine_only, table="{test: paired}").control_notes == (NO_PLAIN,)  # no baseline: also then
    hidden = "[{softmax: {control: false}}, {softmax: {projection: true}}, {mos: {num_mixtures: 2}}]"
    (declared,) = suite(hidden, table=table).control_notes
    assert declared == "softmax is no control because the suite's file says so"
    assert suite("[softmax, sigsoftmax]").control_notes == ()
    assert suite("[softmax, {mos: {num_mixtures: 2}}]", table="{baseline: null}").control_notes == ()


def test_control_is_true_or_false(suite):
    with pytest.raises(SuiteError, match="expected true or false, got 'yes'"):
        suite("[{softmax: {control: 'yes'}}]")
