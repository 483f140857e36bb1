"""Honest mistakes in components: what `harness check`, a plan, a trial and its table say of each."""

import golden
import handmade
import pytest
from trained import loaded

from harness.errors import SuiteError
from harness.plan.suite_file import CheckpointSpec
from harness.report import study
from harness.trial.run import run

pytestmark = pytest.mark.system

SAID = golden.read("careless")


def suite(folder, name, module):
    head, backbone = (name, "lstm") if name in module.HEADS else ("softmax", name)
    text = handmade.suite_text(backbones=f"[{{{backbone}: {{d_model: 8, num_layers: 1}}}}]", heads=f"[{head}]")
    return loaded(folder, text)


@pytest.mark.needs("conformance")
@pytest.mark.parametrize("case", SAID)
def test_what_is_said_of_a_mistake(case, careless, tmp_path):
    from harness.conformance.variants import conformance

    check, ended, said = SAID[case]
    _, outcomes = conformance(case, {} if case in careless.HEADS else {"d_model": 6})
    failed = {each.check for each in outcomes if not each.ok}
    assert check in failed if check else not failed
    if ended == "refused":
        with pytest.raises(SuiteError, match=said):
            suite(tmp_path, case, careless)
        return
    planned = suite(tmp_path, case, careless)
    record = run(handmade.task(planned.trials[0], tmp_path / "results" / "runs" / planned.name))
    assert record.status == ended, record.message
    shown = study.load(planned, tmp_path / "results", warn=[].append).table(wide=True)
    assert said in shown
    assert ended == "ok" or said in record.message
    assert ("in buffers" in shown) == ("in buffers" in said)


def test_buffers_of_a_trial_that_was_resumed_are_counted_from_its_beginning(careless, tmp_path):
    spec = suite(tmp_path, "hides_weights", careless).trials[0]
    every_step = CheckpointSpec(epochs=1, minutes=1e-9)
    whole = run(handmade.task(spec, tmp_path / "whole"))
    with handmade.interrupted_before(20):
        run(handmade.task(spec, tmp_path / "cut", checkpoint=every_step))
    resumed = run(handmade.task(spec, tmp_path / "cut", checkpoint=every_step))
    assert resumed.environment.sessions == 2
    assert resumed.metrics["changed_buffers"] == whole.metrics["changed_buffers"] == 12 * 8


def test_every_mistake_is_in_the_table(careless):
    assert SAID.keys() == {**careless.HEADS, **careless.BACKBONES}.keys()
