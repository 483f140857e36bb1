"""What a table says of tuning: the chosen values, the budget, values at an end, rows without a point; and the plot."""

import math

import handmade
import pytest
from handmade import evidence, tabulated

from harness.plan.controls import NO_AFFINE
from harness.report import outcome
from harness.report.figures import comparison, learning
from harness.report.figures.plots import LeftOut, draw
from harness.report.figures.style import settings
from harness.report.findings import find
from harness.report.outcome import summary
from harness.report.verdicts import obstacle

SUITE = handmade.suite_text(
    heads="[softmax, {mos: {num_mixtures: [2, 3]}}]",
    train="{optimizer: sgd, lr: 1.0, epochs: 2, batch_size: 4, seq_len: 7}",
    seeds="[1, 2]",
    tune="{TUNE}",
    table="{baseline: softmax}",
)
LR = "trials: 4, epochs: 1, seed: 9, space: {train.lr: {log_uniform: [0.5, 20]}}"
HEADS = (
    "[{softmax: {init_range: 0.1}}, {softmax: {projection: true, init_range: 0.1}}, "
    "{mos: {num_mixtures: 2, init_range: 0.1}}]"
)
GRID = "epochs: 1, seed: 9, space: {train.lr: [0.5, 1, 2], head.dropout: [0, 0.4]}"


SIX_SEEDS = SUITE.replace("[1, 2]", "[1, 2, 3, 4, 5, 6]")


@pytest.fixture
def tuned(suite_of):
    """A function: the text of `tune`, a validation perplexity for each point of each row -> the completed suite."""

    def make(tune: str, *found: list[float | None] | None):
        return handmade.chosen(suite_of(SUITE.replace("TUNE", tune)), *found)

    return make


def by_lr(suite, row: int) -> list[int]:
    """The points of a row in the order of their learning rate."""
    candidates = suite.tuned_rows[row].candidates
    return sorted(range(len(candidates)), key=lambda index: candidates[index].point["train.lr"])


def best_at(suite_of, place: int) -> list[float]:
    """Perplexities of the four points of LR, the lowest at the learning rate of a place in their order."""
    order = by_lr(suite_of(SUITE.replace("TUNE", LR)), 0)
    return [9.0 if index == order[place] else 12.0 for index in range(4)]


def notes(text: str, beginning: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"- {beginning}")]


def test_a_value_at_either_end_of_a_range_is_named(tuned, suite_of):
    suite = tuned(LR, best_at(suite_of, 0), best_at(suite_of, 1), best_at(suite_of, 3))
    low, high = (suite.tuned_rows[row].choice.point["train.lr"] for row in (0, 2))
    (note,) = notes(tabulated(suite), "Chosen at the end")
    assert note.endswith(f": softmax: lr {low:g}, the lowest; MoS 3: lr {high:g}, the highest.")


def test_why_the_values_end_stands_in_the_note(tuned, suite_of):
    suite = tuned(f"{LR}, ends: all rows diverge at 30.", *[best_at(suite_of, 3)] * 3)
    (note,) = notes(tabulated(suite), "Chosen at the end")
    assert note.startswith("- Chosen at the end of what was tried: all rows: lr ")
    assert note.endswith(", the highest. Why it ends there: all rows diverge at 30.")


def test_an_end_that_all_rows_have_is_said_once(tuned, suite_of):
    suite = tuned(LR, *[best_at(suite_of, 0)] * 3)
    (note,) = notes(tabulated(suite), "Chosen at the end")
    assert note.endswith(f": all rows: lr {suite.tuned_rows[0].choice.point['train.lr']:g}, the lowest.")


def test_of_a_list_only_three_or_more_numbers_have_ends(tuned):
    # softmax: lr 1 of [0.5, 1, 2]; mos: (lr, dropout) in the order (0.5, 0), (0.5, 0.4), (1, 0), ...
    middle, last = [9, 9, 1, 9, 9, 9], [9, 9, 9, 9, 9, 1]
    (note,) = notes(tabulated(tuned(GRID, [9, 1, 9], middle, last)), "Chosen at the end")
    assert note.endswith(": MoS 3: lr 2, the highest.")  # and nothing on the dropout, 0 or 0.4


def test_a_lowest_value_of_0_is_no_end(tuned):
    tune = "epochs: 1, seed: 9, space: {head.dropout: [0, 0.2, 0.4]}"
    (note,) = notes(tabulated(tuned(tune, [9], [1, 9, 9], [9, 9, 1])), "Chosen at the end")
    assert note.endswith(": MoS 3: head.dropout 0.4, the highest.")


def test_a_choice_has_no_ends(tuned):
    tune = "trials: 16, epochs: 1, seed: 9, space: {train.lr: {choice: [0.5, 1, 2]}}"
    assert notes(tabulated(tuned(tune, [1, 9, 9], [9, 1, 9], [9, 9, 1])), "Chosen at the end") == []


def test_rows_with_fewer_tuning_trials_are_named_and_cannot_be_judged(tuned, record_of):
    # the dropout of a grid applies to the mixtures only: 6 trials for these, 3 for softmax
    suite = tuned(GRID, [9, 9, 1], [9, 9, 1, 9, 9, 9], [9, 9, 9, 9, 9, 1])
    text = tabulated(suite)
    (note,) = notes(text, "Not tuned like the other rows")
    assert note.endswith(": softmax: 3 of the 6 tuning trials of another row.")
    # the note above it does not say the contrary
    before = text.splitlines()[text.splitlines().index(note) - 1]
    assert before.startswith("- Tuned with the same points for every row except those that the next note names: 6 ")
    found = evidence(suite, [record_of(trial) for trial in suite.trials])
    assert [obstacle(row) for row in found.rows] == ["unequal tuning", "", ""]
    alike = tuned(LR, *[[1, 9, 9, 9]] * 3)
    assert notes(tabulated(alike), "Not tuned like the other rows") == []
    assert notes(tabulated(alike), "Tuned with the same points for every row: 4 trials")


def test_notes_name_a_row_as_the_table_does_and_one_that_is_not_in_it_as_the_plan_does(suite_of):
    # the rows are named by what distinguishes them, without the start that they share
    text = SUITE.replace("[softmax, {mos: {num_mixtures: [2, 3]}}]", HEADS).replace("TUNE", LR)
    suite = suite_of(text)
    made = [[9.0] * len(row.tuning_trials) for row in suite.tuned_rows[:2]]
    table = tabulated(handmade.chosen(suite, *made, None))
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith(("| softmax", "| affine"))]
    assert rows == ["softmax", "affine softmax"]
    (gaps,) = notes(table, "Tuning gap")
    assert all(f" {row} " in gaps for row in rows)
    assert "init_range" not in gaps
    (note,) = notes(table, "Not in the table")
    assert note.endswith(": MoS 2.")


def test_a_choice_that_its_records_contradict_is_named_and_cannot_be_judged(tuned, record_of):
    suite = tuned(LR, [9, 9, 1, 9], [9, 9, 1, 9], [9, 9, 1, 9])
    best = [2, 0, 2]  # by the records; the stored choices are all of point 2
    made = {
        trial.id: record_of(trial, valid_ppl=1.0 if index == chosen else 9.0)
        for row, chosen in zip(suite.tuned_rows, best, strict=True)
        for index, trial in enumerate(row.tuning_trials)
    }
    (note,) = notes(tabulated(suite, tuning=made), "Not tuned like the other rows")
    lr = suite.tuned_rows[1].candidates[0].point["train.lr"]
    assert note.endswith(f": MoS 2: not the best of its tuning trials, which is lr {lr:.4g}.")
    finished = [record_of(trial) for trial in suite.trials]
    assert [obstacle(row) for row in evidence(suite, finished, tuning=made).rows] == ["", "unequal tuning", ""]
    del made[suite.tuned_rows[1].tuning_trials[3].id]  # then it is not known
    assert notes(tabulated(suite, tuning=made), "Not tuned like the other rows") == []


def test_the_page_says_what_tuning_leaves_open(tuned, record_of, suite_of):
    # at the second of four rates; the curve rises by log(12 / 9) on both sides, so the largest gap is
    # log(12 / 9) h2^2 / (4 h1 (h1 + h2)), over h1 and h2, the distances to the neighbours
    order = by_lr(suite_of(SUITE.replace("TUNE", LR)), 0)
    suite = tuned(LR, best_at(suite_of, 1), best_at(suite_of, 1), best_at(suite_of, 0))
    rates = [math.log(suite.tuned_rows[0].candidates[index].point["train.lr"]) for index in order]
    before, after = rates[1] - rates[0], rates[2] - rates[1]
    gap = max(
        math.log(12 / 9) * after**2 / (4 * before * (before + after)),
        math.log(12 / 9) * before**2 / (4 * after * (before + after)),
    )
    findings = handmade.findings(suite, records(suite, record_of))
    said = [sentence for sentence, _ in summary(findings, findings.rows)["Can it be trusted?"]]
    lower = f"{100 * (1 - math.exp(-gap)):.1f} %"
    assert (
        f"! Between the values that tuning tried, rows may be lower: by up to {lower}, 1 of 3 rows "
        "(MoS 3) by an unknown amount (tuning gap). Verdicts, stars and ranks allow for it, the means do not."
    ) in said


def test_a_table_with_a_baseline_says_that_nothing_was_tuned(suite_of):
    untuned = SUITE.replace("tune: {TUNE}\n", "")
    assert "- Settings not tuned per head" in tabulated(suite_of(untuned))
    assert "not tuned" not in tabulated(suite_of(untuned.replace("baseline: softmax", "baseline: null")))


def next_commands(suite, made) -> list[str]:
    findings = find(evidence(suite, made))
    return [command for _, command in summary(findings, findings.rows)["What comes next"]]


def records(suite, record_of):
    return [record_of(trial, valid_ppl=9.0, test_ppl=8.0, last_valid_ppl=9.0) for trial in suite.trials]


def test_values_that_tuning_chose_do_not_part_a_series_over_mixtures(tuned, record_of):
    suite = tuned(GRID, [9, 9, 1], [9, 9, 1, 9, 9, 9], [9, 9, 9, 9, 9, 1])  # dropout 0 with K = 2, 0.4 with K = 3
    made = evidence(suite, records(suite, record_of))
    found = comparison.series_by("num_mixtures", made.rows, made)
    assert [[point.x for point in series.points] for series in found] == [[2, 3]]


def test_the_plot_has_the_lowest_of_each_value_the_chosen_one_and_what_failed(tuned, record_of):
    ppl = [12.0, None, 9.0, 100.0]
    suite = tuned(LR, ppl, [12.0, 11.0, 13.0, 14.0], None)
    made = evidence(suite, records(suite, record_of))
    lrs = [each.point["train.lr"] for each in suite.tuned_rows[0].candidates]
    with settings():
        on, caption = learning.tuning("train.lr", made.rows, made)
    softmax, mos = on.get_legend_handles_labels()[0]
    assert [tuple(each) for each in softmax.get_xydata()] == sorted([(lrs[0], 12), (lrs[2], 9)])
    assert [tuple(each) for each in mos.get_xydata()] == sorted(zip(lrs, [12, 11, 13, 14], strict=True))
    circles = [line.get_xydata().tolist() for line in on.lines if line.get_fillstyle() == "none"]
    assert circles == [[[lrs[2], 9]], [[lrs[1], 11]]]
    crosses = [sorted(line.get_xdata()) for line in on.lines if line.get_marker() == "x"]
    assert crosses == [sorted([lrs[1], lrs[3]]), []]  # 100 is above the ceiling, ten times 9
    assert "of 1 epoch, seed 9" in caption
    assert "Crosses at the top" in caption


def test_a_list_of_numbers_has_a_plot_over_all_values_of_other_keys(tuned, record_of):
    # softmax: lr 0.5, 1, 2; mos: (lr, dropout) in the order (0.5, 0), (0.5, 0.4), (1, 0), ...; dropout 0.4 is chosen
    suite = tuned(GRID, [9, None, 7], [20, 10, 11, 21, None, 8], None)
    made = evidence(suite, records(suite, record_of))
    one, other = learning.tried("train.lr", made.rows, suite)
    assert (one.lowest, one.best) == ({0.5: 9, 1: None, 2: 7}, (2, 7))
    assert (other.lowest, other.best) == ({0.5: 10, 1: 11, 2: 8}, (2, 8))
    drawn = draw(find(made), "suite")
    assert [each.name for each in drawn if not isinstance(each, LeftOut) and "tuning" in each.name] == ["tuning_lr"]


def test_rates_of_a_group_and_settings_within_a_schedule_are_said(tuned, record_of):
    space = "{train.groups.head.lr: [x0.1, x0.3, x1], train.schedule.warmup.steps: [2]}"
    suite = tuned(f"epochs: 1, seed: 9, space: {space}", [7, 8, 9], [9, 7, 8], None)
    made = evidence(suite, records(suite, record_of))
    assert [row.best for row in learning.tried("train.groups.head.lr", made.rows, suite)] == [(0.1, 7), (0.3, 7)]
    text = tabulated(suite, records(suite, record_of))
    assert "groups {head: {lr: tuned}}" in text
    assert "schedule {warmup: {steps: tuned}}" in text
    assert "wider range may be better: softmax: groups.head.lr x0.1, the lowest." in text
    assert [row.tuned["train.groups.head.lr"] for row in made.rows] == ["x0.1", "x0.3"]


def test_a_wider_range_of_factors_is_a_command(suite_of, record_of):
    tune = "epochs: 1, seed: 9, space: {train.groups.head.lr: [x0.1, x0.3, x1]}"
    suite = handmade.chosen(suite_of(SIX_SEEDS.replace("TUNE", tune)), [7, 8, 9], [9, 7, 8], [9, 8, 7])
    (command,) = next_commands(suite, records(suite, record_of))
    assert "tune.space.train.groups.head.lr=[x0.033,x0.1,x0.3,x1,x3.3]" in command


@pytest.mark.parametrize(
    ("axis", "best", "changed"),
    [
        ("log_uniform: [0.5, 8]", (0, 0, 0), "{log_uniform: [0.12, 8]}"),  # 0.5 / sqrt(8 / 0.5): 0.125, two digits
        ("log_uniform: [0.5, 8]", (0, 1, 3), "{log_uniform: [0.12, 32]}"),
        ("uniform: [1, 3]", (1, 1, 3), "{uniform: [1, 4]}"),
        ("uniform: [1, 9]", (0, 1, 1), "{uniform: [0.5, 9]}"),  # not below 0
    ],
)
def test_a_range_whose_last_point_is_the_best_is_made_wider(suite_of, record_of, axis, best, changed):
    tune = f"trials: 4, epochs: 1, seed: 9, space: {{train.lr: {{{axis}}}}}"
    suite = suite_of(SIX_SEEDS.replace("TUNE", tune))
    lowest = [by_lr(suite, number)[place] for number, place in enumerate(best)]
    suite = handmade.chosen(suite, *([9.0 if index == at else 12.0 for index in range(4)] for at in lowest))
    (command,) = next_commands(suite, records(suite, record_of))
    assert command.endswith(f"--set 'tune.space.train.lr={changed}'")


def test_a_wider_range_that_the_suite_refuses_and_a_key_that_a_head_has_not_are_left_out(suite_of, record_of):
    tune = "trials: 4, epochs: 1, seed: 9, space: {head.dropout: {uniform: [0, 0.9]}}"  # 0.9 + 0.45 is no rate
    suite = suite_of(SIX_SEEDS.replace("TUNE", tune))
    found = [[9.0 - each.point.get("head.dropout", 0) for each in row.candidates] for row in suite.tuned_rows]
    suite = handmade.chosen(suite, *found)  # softmax has one point, without dropout
    assert next_commands(suite, records(suite, record_of)) == []


def test_whole_numbers_stay_whole_in_a_wider_grid(suite_of, record_of):
    tune = "epochs: 1, seed: 9, space: {head.num_mixtures: [2, 5, 10]}"
    suite = suite_of(SIX_SEEDS.replace("TUNE", tune).replace("num_mixtures: [2, 3]", "dropout: 0"))
    suite = handmade.chosen(suite, [9], [7, 8, 9])
    (command,) = next_commands(suite, records(suite, record_of))
    assert command.endswith("--set 'tune.space.head.num_mixtures=[1,2,5,10]'")


@pytest.mark.parametrize(
    ("others", "verdicts", "sentences"),
    [
        ((99.5, 99.5), ["undecided: coarse tuning"] * 2, ["Nothing is decided: coarse tuning."]),
        (
            (98.8, 99.5),  # 1.2 % better, so beyond the margin of 1 %
            ["better, coarse tuning", "undecided: coarse tuning"],
            [
                "MoS 2 beats softmax by 1.2 % [1.2, 1.2] at the chosen settings (coarse tuning).",
                f"{NO_AFFINE}.",
                "MoS 3 is undecided.",
            ],
        ),
        (
            (98.8, 98.7),
            ["better, coarse tuning"] * 2,
            [
                "MoS 2 and MoS 3 beat softmax by 1.2 to 1.3 % at the chosen settings (coarse tuning); which of them is "
                "the best is not decided."
            ],
        ),
    ],
)
def test_where_tuning_is_too_coarse_verdicts_are_of_the_chosen_settings_and_values_between_those_tried_come_next(
    suite_of, record_of, others, verdicts, sentences
):
    tune = "epochs: 1, seed: 9, space: {train.lr: [0.5, 1, 2]}"
    # the middle is the best by far: between the values it may be 1.5 % lower
    suite = handmade.chosen(suite_of(SIX_SEEDS.replace("TUNE", tune)), *[[9, 8, 9]] * 3)
    levels = {None: 100.0, 2: others[0], 3: others[1]}
    made = [
        record_of(trial, test_ppl=level + (trial.seed**2 + int(level)) % 7 / 100)
        for trial in suite.trials
        for level in [levels[trial.head.params.get("num_mixtures")]]
    ]
    found = find(evidence(suite, made))
    assert [str(each.judged) for each in found.compared.values()] == verdicts
    assert outcome.sentences(found, found.rows)[: len(sentences)] == sentences
    (command,) = next_commands(suite, made)
    assert command.endswith("--set 'tune.space.train.lr=[0.5,0.71,1,1.4,2]'")


def test_values_without_an_order_have_no_ends(tuned, record_of):
    suite = tuned("epochs: 1, seed: 9, space: {train.schedule: [null, {warmup: {steps: 2}}]}", [8, 9], [9, 8], None)
    assert "at the end of what was tried" not in tabulated(suite, records(suite, record_of))


@pytest.mark.parametrize("tune", ["space: {train.lr: [0.5, 1]}", "trials: 2, space: {train.lr: {choice: [0.5, 1, 2]}}"])
def test_two_numbers_and_a_choice_have_no_plot(tuned, record_of, tune):
    suite = tuned(f"epochs: 1, seed: 9, {tune}", *[[9, 8]] * 3)
    drawn = draw(find(evidence(suite, records(suite, record_of))), "suite")
    assert not [each for each in drawn if "tuning" in each.title]
