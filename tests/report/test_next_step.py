"""What comes next, in the order that helps; and its command, when it is run, changes the verdict or the sentence.

For each kind there is a planted case: the changes of the command go through the loader, and the records that such a run
would give are made by hand.
"""

import itertools
import math
import shlex

import handmade
import pytest

from harness.report import outcome

UNTUNED = handmade.suite_text(
    heads="[{softmax: {init_range: 0.1}}, {mos: {num_mixtures: 2}}]",
    train="{optimizer: sgd, lr: 1.0, epochs: 2, batch_size: 4, seq_len: 7}",
    seeds="[1, 2, 3, 4, 5, 6]",
    table="{baseline: softmax}",
)
TUNED = f"{UNTUNED}tune: {{space: {{train.lr: [0.5, 1, 2]}}}}\n"
FALLING, FLAT = (30.0, 20.0), (20.0, 19.99, 20.0)
COLLAPSED = 1090.0  # 0.95 of the unigram's 1100 is 1045


@pytest.fixture
def plant(suite_of, record_of):
    """A function: a suite's text, changes by --set, mean test perplexities of softmax and MoS 2 -> what is found.

    Args:
        best, steep: the validation perplexity of a point is 9 exp(steep log2(lr / best)^2).
        curve: of validation perplexity, which each trial has.
        statuses: (head, seed) -> the status of a trial that is not ok.
        spread: of the differences between seeds.
    """

    def make(text, *changes, softmax, mos, best=1.0, steep=0.02, curve=FLAT, statuses=(), spread=0.02):
        suite = suite_of(text, *changes)
        if suite.tune is not None:
            points = [[each.point["train.lr"] for each in row.candidates] for row in suite.tuned_rows]
            valid = [[9 * math.exp(steep * math.log2(rate / best) ** 2) for rate in rates] for rates in points]
            suite = handmade.chosen(suite, *valid)
        made = []
        for trial in suite.trials:
            level, at = (softmax, 3) if trial.head.name == "softmax" else (mos, 5)
            if status := dict(statuses).get((trial.head.name, trial.seed)):
                made.append(record_of(trial, status))
                continue
            record = record_of(trial, test_ppl=level + spread * (trial.seed**2 % at - 1))
            made.append(handmade.learned(record, *curve, loss=1.0 + trial.seed))
        return handmade.findings(suite, made)

    return make


def step(findings) -> tuple[str, str]:
    """What comes next: the sentence, and the command."""
    (found,) = outcome.summary(findings, findings.rows)["What comes next"]
    return found


def changes(command: str) -> list[str]:
    """The values of --set in a command."""
    words = shlex.split(command)
    return [value for option, value in itertools.pairwise(words) if option == "--set"]


def verdict(findings) -> str:
    """That of MoS 2."""
    (compared,) = findings.compared.values()
    return compared.verdict


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("oom", "1 trial has failed, for the reasons below:"),
        ("invalid", "1 trial is invalid, for the reasons below. Once its head or its backbone is mended:"),
    ],
)
def test_a_trial_that_failed_or_is_invalid_is_run_again(plant, status, said):
    before = plant(TUNED, softmax=100, mos=95, statuses={("mos", 3): status})
    assert [each.verdict for each in before.compared.values()] == ["too few seeds"] * (status == "oom")
    assert step(before) == (said, "harness run suites/suite.yaml --retry-failed")
    assert verdict(plant(TUNED, softmax=100, mos=95)) == "better"


@pytest.mark.parametrize(
    ("curve", "sentence", "more"),
    [
        (FLAT, "At other learning rates:", []),
        (FALLING, "At other learning rates and for longer:", ["train.epochs=6"]),
    ],
)
def test_after_a_collapse_the_rate_is_tuned_and_rows_that_still_fall_are_trained_longer(plant, curve, sentence, more):
    before = plant(UNTUNED, softmax=COLLAPSED, mos=100, curve=curve)
    assert verdict(before).startswith("better, ")  # than a control that learned nothing
    text, command = step(before)
    assert text == f"Collapsed (↓) or diverged: softmax. {sentence}"
    assert changes(command) == ["tune={seed: 0, space: {train.lr: [0.25, 0.5, 1, 2, 4]}}", *more]
    after = plant(UNTUNED, *changes(command), softmax=100, mos=100.05)
    assert verdict(after) == "equivalent"
    assert [record.spec.train.epochs for record in after.evidence.finished] == [6 if more else 2] * 12


def test_a_trial_that_diverged_needs_another_rate_and_not_another_try(plant):
    before = plant(UNTUNED.replace("[1, 2,", "[0, 1, 2,"), softmax=100, mos=95, statuses={("mos", 3): "diverged"})
    assert verdict(before) == "undecided: seeds failed"
    text, command = step(before)
    assert text == "Collapsed (↓) or diverged: MoS 2. At other learning rates:"
    (change,) = changes(command)
    assert change.startswith("tune={seed: 7, ")  # 0 to 6 are seeds of the table
    assert verdict(plant(UNTUNED, change, softmax=100, mos=95)) == "better"


def test_a_tuned_row_that_collapsed_at_an_end_gets_a_wider_range_and_within_it_more_epochs(plant):
    text, command = step(plant(TUNED, softmax=COLLAPSED, mos=100, best=2))
    assert (text, changes(command)) == (
        "Collapsed (↓) or diverged: softmax. With a wider range:",
        ["tune.space.train.lr=[0.5,1,2,4]"],
    )
    assert verdict(plant(TUNED, *changes(command), softmax=100, mos=100.05, best=2)) == "equivalent"
    text, command = step(plant(TUNED, softmax=COLLAPSED, mos=100))
    assert (text, changes(command)) == (
        "Collapsed (↓) or diverged: softmax. Trained 3 times as long:",
        ["train.epochs=6"],
    )
    assert verdict(plant(TUNED, *changes(command), softmax=100, mos=100.05)) == "equivalent"


@pytest.mark.parametrize(
    ("seeds", "and_seeds", "more"), [("[1, 2, 3, 4, 5, 6]", "", []), ("[1, 2]", " and 6 seeds", ["seeds=6"])]
)
def test_where_nothing_was_tuned_the_rate_is_before_seeds_and_longer_training(plant, seeds, and_seeds, more):
    text = UNTUNED.replace("[1, 2, 3, 4, 5, 6]", seeds)
    before = plant(text, softmax=100, mos=97, curve=FALLING)
    said, command = step(before)
    assert said.endswith(f"With the rate tuned for each row{and_seeds}:")
    assert changes(command) == ["tune={seed: 0, space: {train.lr: [0.25, 0.5, 1, 2, 4]}}", *more]
    after = plant(text, *changes(command), softmax=97, mos=97.05)
    assert verdict(before) != verdict(after) == "equivalent"


def test_rows_that_have_not_converged_are_trained_longer_before_there_are_more_seeds(plant):
    few = TUNED.replace("[1, 2, 3, 4, 5, 6]", "[1, 2, 3]")
    for text in (TUNED, few):
        said, command = step(plant(text, softmax=100, mos=95, curve=FALLING))
        assert (said, changes(command)) == ("Rows have not converged. Train 3 times as long:", ["train.epochs=6"])
    assert verdict(plant(TUNED, softmax=100, mos=95, curve=FALLING)) == "better, neither converged"
    assert verdict(plant(TUNED, *changes(command), softmax=100, mos=95)) == "better"


def test_a_best_value_at_an_end_asks_for_a_wider_range_except_where_the_suite_says_why_it_ends_there(plant):
    before = plant(TUNED, softmax=100, mos=98.5, best=2)
    assert verdict(before) == "better, coarse tuning"
    _, command = step(before)
    assert changes(command) == ["tune.space.train.lr=[0.5,1,2,4]"]
    assert verdict(plant(TUNED, *changes(command), softmax=100, mos=98.5, best=2)) == "better"
    ends = TUNED.replace("[0.5, 1, 2]}", "[0.5, 1, 2]}, ends: all rows diverge at 4")
    said = plant(ends, softmax=100, mos=98.5, best=2)
    assert outcome.summary(said, said.rows)["What comes next"] == []  # no value between those tried reaches the end
    few = ends.replace("[1, 2, 3, 4, 5, 6]", "[1, 2, 3]")
    assert changes(step(plant(few, softmax=100, mos=98.5, best=2))[1]) == ["seeds=6"]


def test_epochs_that_are_tuned_are_not_set_beside_their_range(plant):
    of_epochs = TUNED.replace("[0.5, 1, 2]", "[0.5, 1, 2], train.epochs: [2, 4]")
    found = plant(of_epochs, softmax=100, mos=95, curve=FALLING)
    assert "not converged" in verdict(found) or "neither converged" in verdict(found)
    assert outcome.summary(found, found.rows)["What comes next"] == []


def test_with_six_seeds_there_is_a_verdict(plant):
    few = TUNED.replace("[1, 2, 3, 4, 5, 6]", "[1, 2, 3]")
    before = plant(few, softmax=100, mos=95)
    assert verdict(before) == "too few seeds"
    said, command = step(before)
    assert (said, changes(command)) == ("With 6 seeds or more, rows are ranked and have a verdict:", ["seeds=6"])
    assert verdict(plant(few, *changes(command), softmax=100, mos=95)) == "better"
    said, _ = step(plant(few.replace("baseline: softmax", "baseline: null"), softmax=100, mos=95))
    assert said == "With 6 seeds or more, rows are ranked:"


def test_values_between_those_tried_settle_a_comparison_that_is_closer_than_the_curve_is_steep(plant):
    # between equal distances the curve may be lower by an eighth of its rise: 0.1 / 8 = 1.25 %, then 0.025 / 8
    before = plant(TUNED, softmax=100, mos=98.85, steep=0.1)
    assert verdict(before) == "better, coarse tuning"
    _, command = step(before)
    assert changes(command) == ["tune.space.train.lr=[0.5,0.71,1,1.4,2]"]
    assert verdict(plant(TUNED, *changes(command), softmax=100, mos=98.85, steep=0.1)) == "better"


def test_more_seeds_decide_what_their_spread_leaves_open(plant):
    before = plant(TUNED, softmax=100, mos=99.3, spread=0.8)
    assert verdict(before) == "undecided"
    said, command = step(before)
    (change,) = changes(command)
    assert said.startswith("MoS 2 needs ")
    assert said.endswith(" to detect 1 %:")
    assert verdict(plant(TUNED, change, softmax=100, mos=99.3, spread=0.8)) == "equivalent"  # 0.7 %


def test_where_all_is_decided_nothing_comes_next(plant):
    found = plant(TUNED, softmax=100, mos=95)
    assert outcome.summary(found, found.rows)["What comes next"] == []


@pytest.mark.parametrize(
    ("space", "heads", "best", "expected"),
    [
        # 0.5 / sqrt(8 / 0.5): 0.125, two digits
        ("train.lr: {log_uniform: [0.5, 8]}", None, (0, 0, 0), "train.lr={log_uniform: [0.12, 8]}"),
        ("train.lr: {log_uniform: [0.5, 8]}", None, (0, 1, 3), "train.lr={log_uniform: [0.12, 32]}"),
        ("train.lr: {uniform: [1, 3]}", None, (1, 1, 3), "train.lr={uniform: [1, 4]}"),
        ("train.lr: {uniform: [1, 9]}", None, (0, 1, 1), "train.lr={uniform: [0.5, 9]}"),  # not below 0
        ("head.dropout: {uniform: [0, 0.9]}", None, (0, 3, 3), ""),  # 0.9 + 0.45 is no rate; softmax has none
        (
            "train.groups.head.lr: [x0.1, x0.3, x1]",
            None,
            (0, 1, 2),
            "train.groups.head.lr=[x0.033,x0.1,x0.3,x1,x3.3]",
        ),
        # whole numbers stay whole: 2 ** 2 / 5 is 0.8
        ("head.num_mixtures: [2, 5, 10]", "softmax, mos", (0, 0), "head.num_mixtures=[1,2,5,10]"),
    ],
)
def test_a_range_whose_last_point_is_the_best_is_made_wider(suite_of, record_of, space, heads, best, expected):
    trials = "trials: 4, " * ("uniform" in space)
    text = UNTUNED.replace("{softmax: {init_range: 0.1}}, {mos: {num_mixtures: 2}}", heads or "softmax, mos, moc")
    suite = suite_of(f"{text}tune: {{{trials}epochs: 1, seed: 9, space: {{{space}}}}}\n")
    key, found = space.partition(":")[0], []
    for row, place in zip(suite.tuned_rows, best, strict=True):
        values = [str(each.point.get(key, 0)).removeprefix("x") for each in row.candidates]
        lowest = sorted(values, key=float)[place]
        found.append([9.0 if value == lowest else 12.0 for value in values])
    suite = handmade.chosen(suite, *found)
    made = [record_of(trial, valid_ppl=9.0, test_ppl=8.0, last_valid_ppl=9.0) for trial in suite.trials]
    findings = handmade.findings(suite, made)
    said = outcome.summary(findings, findings.rows)["What comes next"]
    assert [changes(command) for _, command in said] == ([[f"tune.space.{expected}"]] if expected else [])
