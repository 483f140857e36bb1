"""Which heads of a suite are controls, and what a plan says of controls that it lacks."""

from pathlib import Path

import handmade
import pytest
from ruamel.yaml import YAML

from harness import plan
from harness.plan.controls import NO_AFFINE, NO_PLAIN

IS_CONTROL = YAML(typ="safe").load(Path(__file__).parents[1] / "golden" / "controls.yaml")["is_control"]


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


@pytest.mark.parametrize("head", IS_CONTROL)
def test_a_control_is_a_plain_softmax_of_the_state(suite, head):
    (row,) = suite(f"[{{{head}}}]" if ":" in head else f"[{head}]").rows
    assert row.is_control == IS_CONTROL[head]


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
