"""Honest mistakes in components: what `harness check`, a plan, a trial and its table say of each."""

import handmade
import pytest
from trained import loaded

from harness.errors import SuiteError
from harness.plan.suite_file import CheckpointSpec
from harness.report import study
from harness.trial.run import run

pytestmark = pytest.mark.system

ASKED = "the nll that was counted for a token is not -log_probs of its target, asked in a process of its own"
GRADIENTS, AGREE, ROWS = "gradients", "nll, mean_nll and log_probs agree", "rows are independent"
NOTHING_LEARNED = "nothing is learned in evaluation"
SEEDS, LEARNS = "same seed, same output", "while the valid split was scored; where"
# component -> the check of `harness check` that fails ('' for none), how its trial ends, what is said of it there
SAID = {
    "drops_out_always": (GRADIENTS, "invalid", ASKED),
    "normalises_rows": ("probabilities sum to 1", "invalid", "do not sum to 1"),
    "smooths": (AGREE, "invalid", ASKED),
    "teaches_itself": (AGREE, "invalid", ASKED),
    "caches_logits": (GRADIENTS, "invalid", ASKED),
    "remembers_states": (GRADIENTS, "invalid", ASKED),
    "normalises_batches": (ROWS, "invalid", ASKED),
    "counts_calls": (GRADIENTS, "invalid", ASKED),
    "scales_by_batch": (ROWS, "invalid", ASKED),
    "remembers_text": ("", "invalid", ASKED),
    "pools_segment": ("no dependence on later tokens", "invalid", ASKED),
    "centres_by_memory": (NOTHING_LEARNED, "error", LEARNS),
    "calibrates": (NOTHING_LEARNED, "error", LEARNS),
    "registers_late": ("counted without allocating", "error", "head.late.weight was made after the model was built"),
    "seeds_itself": ("", "refused", "seeds torch's random generator in its constructor"),
    "shares_under_another_name": ("", "refused", "in the memory of the backbone's embedding.weight: both are trained"),
    "takes_rate": ("", "refused", "has given the backbone's embedding.weight a learning rate of its own"),
    "hides_weights": (
        "",
        "ok",
        "hides_weights keeps 96 numbers in buffers that training changed; they count as parameters",
    ),
    "normalises_running": ("", "ok", "normalises_running keeps 17 numbers in buffers that training changed"),
    "counts_and_initialises": ("", "error", "changed weights of backbone lstm while it counted the text"),
    "counts_unsaved": ("", "invalid", "changed the buffer head.counts_V, which is not among the saved weights"),
    "centres_unsaved": ("", "invalid", "changed the buffer head.mean, which is not among the saved weights"),
    "counts_validation": ("", "refused", r"its method is count\(train_N, valid_N, line_end\), expected count\(train_N"),
    "caches_mask": ("", "ok", ""),
    "counts_pairs": ("", "ok", "numbers in buffers that training changed"),
    # no trial finds these: docs/certificates.md names those that may give a better number
    "detaches": (GRADIENTS, "ok", ""),
    "scales_gradient": (GRADIENTS, "ok", ""),
    "scales_in_place": (GRADIENTS, "ok", ""),
    "sums_loss": ("the training loss is a mean", "ok", ""),
    "reads_clock": (SEEDS, "ok", ""),
    "draws_unseeded": (SEEDS, "ok", ""),
    "forgets_state": ("carried state", "ok", ""),
    "seeds_steps": ("", "ok", ""),
    "decays_embedding": ("", "ok", ""),
}


def suite(folder, name, module):
    head, backbone = (name, "lstm") if name in module.HEADS else ("softmax", name)
    text = handmade.suite_text(backbones=f"[{{{backbone}: {{d_model: 8, num_layers: 1}}}}]", heads=f"[{head}]")
    return loaded(folder, text)


@pytest.mark.needs("conformance")
@pytest.mark.guards("component-seeds-nothing", case="seeds_itself")
@pytest.mark.guards("nothing-learned-in-evaluation", case="calibrates")
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


@pytest.mark.guards("counting-leaves-backbone")
def test_a_head_that_counts_leaves_the_backbone_as_it_is(careless, tmp_path):
    planned = suite(tmp_path, "counts_and_initialises", careless)
    record = run(handmade.task(planned.trials[0], tmp_path / "runs"))
    assert "while it counted the text" in record.message


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
