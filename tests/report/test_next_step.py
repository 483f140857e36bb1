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


FEW, TWO = (each.replace("[1, 2, 3, 4, 5, 6]", seeds) for each, seeds in ((TUNED, "[1, 2, 3]"), (UNTUNED, "[1, 2]")))
FROM_0 = UNTUNED.replace("[1, 2,", "[0, 1, 2,")
LOST = {"softmax": COLLAPSED, "mos": 100}
MENDED = {"mos": 100.05}
RATES = "tune={seed: SEED, space: {train.lr: [0.25, 0.5, 1, 2, 4]}}"
ANY_SEED, OF_0_TO_6 = RATES.replace("SEED", "0"), RATES.replace("SEED", "7")
WIDER, FINER = "tune.space.train.lr=[0.5,1,2,4]", "tune.space.train.lr=[0.5,0.71,1,1.4,2]"
OF_SOFTMAX = "Collapsed (↓) or diverged: softmax."


@pytest.mark.parametrize(
    ("text", "before", "word", "said", "changed", "after", "then"),
    [
        # after a collapse the rate is tuned, and rows that still fall are trained longer; the verdict before is one
        # against a control that learned nothing
        (UNTUNED, LOST, "better, ", f"{OF_SOFTMAX} At other learning rates:", [ANY_SEED], MENDED, "equivalent"),
        (
            UNTUNED,
            {**LOST, "curve": FALLING},
            "better, ",
            f"{OF_SOFTMAX} At other learning rates and for longer:",
            [ANY_SEED, "train.epochs=6"],
            MENDED,
            "equivalent",
        ),
        # a trial that diverged needs another rate, not another try; 0 to 6 are seeds of the table
        (
            FROM_0,
            {"mos": 95, "statuses": {("mos", 3): "diverged"}},
            "undecided: seeds failed",
            "Collapsed (↓) or diverged: MoS 2. At other learning rates:",
            [OF_0_TO_6],
            {"mos": 95},
            "better",
        ),
        # a tuned row that collapsed at an end gets a wider range, and within it more epochs
        (
            TUNED,
            {**LOST, "best": 2},
            "better, ",
            f"{OF_SOFTMAX} With a wider range:",
            [WIDER],
            {**MENDED, "best": 2},
            "equivalent",
        ),
        (TUNED, LOST, "better, ", f"{OF_SOFTMAX} Trained 3 times as long:", ["train.epochs=6"], MENDED, "equivalent"),
        # where nothing was tuned, the rate is before seeds and longer training
        (
            UNTUNED,
            {"mos": 97, "curve": FALLING},
            "better, ",
            "With the rate tuned for each row:",
            [ANY_SEED],
            {"softmax": 97, "mos": 97.05},
            "equivalent",
        ),
        (
            TWO,
            {"mos": 97, "curve": FALLING},
            "too few seeds",
            "With the rate tuned for each row and 6 seeds:",
            [ANY_SEED, "seeds=6"],
            {"softmax": 97, "mos": 97.05},
            "equivalent",
        ),
        # longer training is before more seeds
        (
            TUNED,
            {"mos": 95, "curve": FALLING},
            "better, neither converged",
            "Rows have not converged. Train 3 times as long:",
            ["train.epochs=6"],
            {"mos": 95},
            "better",
        ),
        (
            FEW,
            {"mos": 95, "curve": FALLING},
            "too few seeds",
            "Rows have not converged. Train 3 times as long:",
            ["train.epochs=6"],
            {"mos": 95},
            "too few seeds",
        ),
        (
            FEW,
            {"mos": 95},
            "too few seeds",
            "With 6 seeds or more, rows are ranked and have a verdict:",
            ["seeds=6"],
            {"mos": 95},
            "better",
        ),
        # a best value at an end asks for a wider range
        (
            TUNED,
            {"mos": 98.5, "best": 2},
            "better, coarse tuning",
            "With a wider range:",
            [WIDER],
            {"mos": 98.5, "best": 2},
            "better",
        ),
        # between equal distances the curve may be lower by an eighth of its rise: 0.1 / 8 = 1.25 %, then 0.025 / 8
        (
            TUNED,
            {"mos": 98.85, "steep": 0.1},
            "better, coarse tuning",
            "With more values:",
            [FINER],
            {"mos": 98.85, "steep": 0.1},
            "better",
        ),
    ],
)
def test_the_command_of_what_comes_next_changes_the_verdict(plant, text, before, word, said, changed, after, then):
    found = plant(text, **{"softmax": 100, **before})
    assert verdict(found).startswith(word)
    sentence, command = step(found)
    assert sentence.endswith(said)
    assert changes(command) == changed
    after = plant(text, *changed, **{"softmax": 100, **after})
    assert verdict(after) == then
    epochs = 6 if "train.epochs=6" in changed else 2
    assert {record.spec.train.epochs for record in after.evidence.finished} == {epochs}


def test_no_wider_range_is_asked_for_where_the_suite_says_why_it_ends_there(plant):
    ends = TUNED.replace("[0.5, 1, 2]}", "[0.5, 1, 2]}, ends: all rows diverge at 4")
    said = plant(ends, softmax=100, mos=98.5, best=2)
    assert outcome.summary(said, said.rows)["What comes next"] == []  # no value between those tried reaches the end
    few = ends.replace("[1, 2, 3, 4, 5, 6]", "[1, 2, 3]")
    assert changes(step(plant(few, softmax=100, mos=98.5, best=2))[1]) == ["seeds=6"]


def test_without_a_baseline_six_seeds_give_ranks(plant):
    said, _ = step(plant(FEW.replace("baseline: softmax", "baseline: null"), softmax=100, mos=95))
    assert said == "With 6 seeds or more, rows are ranked:"


def test_epochs_that_are_tuned_are_not_set_beside_their_range(plant):
    of_epochs = TUNED.replace("[0.5, 1, 2]", "[0.5, 1, 2], train.epochs: [2, 4]")
    found = plant(of_epochs, softmax=100, mos=95, curve=FALLING)
    assert "not converged" in verdict(found) or "neither converged" in verdict(found)
    assert outcome.summary(found, found.rows)["What comes next"] == []


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
