"""The key `tune`: the points that are drawn, the trials of both stages, and what is refused."""

import math

import numpy as np
import pytest
from handmade import changed
from scipy.stats import qmc

from harness import plan
from harness.plan.selection import chosen_rows, chosen_trials
from harness.plan.suite import with_choices
from harness.plan.tuning import Axis, Once, points

SPACE = "train.lr: {log_uniform: [0.5, 20]}, head.dropout: {choice: [0, 0.2]}"


def tuned(tune: str = f"{{trials: 5, epochs: 1, seed: 7, space: {{{SPACE}}}}}", *replacements) -> str:
    """A suite with softmax and mos, two seeds and two epochs."""
    return changed(*replacements) + f"tune: {tune}\n"


def test_a_range_is_drawn_from_scrambled_sobol_points():
    tune = Once(trials=6, epochs=1, seed=3, space={"train.lr": {"log_uniform": [0.5, 20.0]}})
    (us,) = qmc.Sobol(1, scramble=True, rng=np.random.default_rng(3)).random_base2(3).T  # eight; six of them are used
    expected = [math.exp(math.log(0.5) + u * (math.log(20) - math.log(0.5))) for u in us[:6]]
    drawn = [point["train.lr"] for point in points(tune)]
    assert [f"{value:.4g}" for value in drawn] == [f"{value:.4g}" for value in expected]
    tune = Once(trials=64, epochs=1, space={"train.lr": {"uniform": [1.00004, 1.00006]}})
    assert {point["train.lr"] for point in points(tune)} <= {1.00004, 1.00006}  # within; four digits would be 1.000


def test_each_axis_that_is_no_list_is_a_dimension():
    space = {
        "train.clip": {"uniform": [1.0, 3.0]},
        "train.momentum": [0.0, 0.9],
        "head.gate": {"choice": ["a", "b", "c"]},
    }
    us = qmc.Sobol(2, scramble=True, rng=np.random.default_rng(0)).random_base2(2)
    found = points(Once(trials=4, epochs=1, space=space))
    assert [list(point) for point in found] == [list(space)] * 8
    assert [point["train.momentum"] for point in found] == [0.0] * 4 + [0.9] * 4
    for cell in (found[:4], found[4:]):  # every cell of the grid has the same points
        assert [point["train.clip"] for point in cell] == pytest.approx(1 + 2 * us[:, 0], rel=5e-4)
        assert [point["head.gate"] for point in cell] == ["abc"[int(3 * u)] for u in us[:, 1]]


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        *[({"uniform": [0, 1]}, True), ([0.5, 1, 2], True), ([0.5, 1], False), (["x0.1", "x0.3", "x1"], True)],
        *[(["x0.1", "x0.10", "x1"], False), (["x0.1", 0.3, 1], False), ([1, None, 2], False), ([0, True, 2], False)],
        ({"choice": [0.5, 1, 2]}, False),
    ],
)
def test_ranges_and_lists_of_three_numbers_are_in_an_order(values, ordered):
    assert Axis.model_validate(values).ordered is ordered


def test_all_rows_have_the_same_points_without_what_does_not_apply(write):
    suite = plan.load(write(tuned()))
    softmax, mos = suite.tuned_rows
    of_rows = [[each.point["train.lr"] for each in row.candidates] for row in (softmax, mos)]
    assert of_rows[0] == of_rows[1]
    assert {key for each in softmax.candidates for key in each.point} == {"train.lr"}
    assert len(mos.candidates) == 5
    for each in mos.candidates:
        assert (each.longest.train.lr, each.longest.head.params["dropout"]) == tuple(each.point.values())
        assert (each.longest.seed, each.longest.train.epochs) == (7, 1)
        assert [(trial.seed, trial.train.epochs) for trial in each.trials] == [(1, 2), (2, 2)]
    assert suite.trials == ()


DEEPER = """train.groups.head.lr: [x0.1, 0.3], train.schedule.warmup.steps: [4], train.optimizer: [adamw, muon],
  head.dropout: [0, 0.25]"""


def test_a_trial_of_the_table_is_the_one_that_a_suite_with_these_values_has(write):
    def settings(steps: int, groups: str) -> tuple[str, str]:
        warmup = f"{{warmup: {{steps: {steps}, decay: linear}}}}"
        return "seq_len: 7", f"seq_len: 7, schedule: {warmup}, groups: {{vectors: {{lr: x2}}{groups}}}"

    suite = plan.load(write(tuned(f"{{epochs: 1, space: {{{DEEPER}}}}}", settings(2, ""))))
    candidates = suite.tuned_rows[1].candidates
    assert len(candidates) == 8
    for each in candidates:
        rate, steps, optimizer, dropout = each.point.values()
        by_hand = settings(steps, f", head: {{lr: {rate}}}"), ("adam,", f"{optimizer},")
        written = plan.load(write(changed(*by_hand, ("num_mixtures: 2", f"num_mixtures: 2, dropout: {dropout}"))))
        finals = written.trials[2:]  # of the mixture
        assert [trial.id for trial in each.trials] == [trial.id for trial in finals]
        assert suite.candidate_of(each.trials[0]).params == written.candidate_of(finals[0]).params
        assert each.longest.train.schedule.warmup.steps == steps / 2  # half of the epochs


@pytest.fixture
def suite(write):
    """Two rows with five points each."""
    return plan.load(write(tuned()))


def test_the_lowest_perplexity_is_chosen_the_first_of_equal_ones_and_its_trials_are_those_of_the_table(suite):
    row = suite.tuned_rows[0]
    ids = [trial.id for trial in row.tuning_trials]
    found = dict(zip(ids, [9.0, None, 8.0, 8.0, 8.5], strict=True))
    assert row.choose(found).trial == ids[2]
    assert row.choose(found).point == row.candidates[2].point
    assert row.choose({trial: ppl for trial, ppl in found.items() if trial != ids[4]}) is None
    lost = row.choose(dict.fromkeys(ids))
    assert (lost.trial, lost.point) == (None, {})
    mos = suite.tuned_rows[1]
    choice = mos.choose(dict(zip([trial.id for trial in mos.tuning_trials], [9.0, 7.0, 8.0, 8.0, 8.5], strict=True)))
    completed = with_choices(suite, [None, choice])
    assert completed.trials == mos.candidates[1].trials
    assert with_choices(suite, [lost, None]).trials == ()


def test_a_condition_selects_the_tuning_of_its_rows(suite):
    softmax, mos = suite.tuned_rows
    assert chosen_rows(suite, ("head=mos,seed=2",)) == [mos]
    assert chosen_rows(suite, ("seed=7",)) == [softmax, mos]
    choices = [row.choose({trial.id: 9.0 for trial in row.tuning_trials}) for row in suite.tuned_rows]
    completed = with_choices(suite, choices)
    assert [f"{each.head.name} {each.seed}" for each in chosen_trials(completed, ("seed=2",))] == ["softmax 2", "mos 2"]
    assert chosen_trials(completed, ("seed=7",)) == ()


def test_epochs_are_tuned_with_trials_of_their_length_and_scaled_schedules(write):
    text = tuned(
        "{seed: 7, space: {train.lr: [1, 2], train.epochs: [2, 4, 8]}}",
        ("epochs: 2", "epochs: 4, schedule: {step: {after: 2, factor: 0.25}}"),
    )
    made = plan.load(write(text))
    softmax, _ = made.tuned_rows
    lengths = [2, 4, 8]
    for each, epochs in zip(softmax.candidates[:3], lengths, strict=True):
        assert {each.longest.train.epochs, *(final.train.epochs for final in each.trials)} == {epochs}
        assert each.longest.seed == 7
    # of 4 epochs two have a lower rate, the last one 1/16: of 2 epochs one, of 8 epochs four, with the same last rate
    steps = [each.longest.train.schedule.step for each in softmax.candidates[:3]]
    assert [(step.after, step.factor) for step in steps] == [(1, 1 / 16), (2, 0.25), (4, 0.5)]
