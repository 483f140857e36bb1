"""What a table says of tuning beyond the planted suite: values at an end, contradicted choices, coarse values."""

import handmade
import pytest
from handmade import evidence, notes, tabulated

from harness.report import outcome
from harness.report.figures import learning
from harness.report.findings import find
from harness.report.verdicts import obstacle

SUITE = handmade.suite_text(
    heads="[softmax, {mos: {num_mixtures: [2, 3]}}]",
    train="{optimizer: sgd, lr: 1.0, epochs: 2, batch_size: 4, seq_len: 7}",
    seeds="[1, 2]",
    tune="{epochs: 1, seed: 9, TUNE}",
    table="{baseline: softmax}",
)
LR = "trials: 4, space: {train.lr: {log_uniform: [0.5, 20]}}"


@pytest.fixture
def tuned(suite_of):
    """A function: the text of `tune`, a validation perplexity for each point of each row -> the completed suite."""

    def make(tune: str, *found: list[float | None] | None):
        suite = suite_of(SUITE.replace("TUNE", tune))
        return handmade.chosen(suite, *found) if found else suite

    return make


END = "Chosen at the end of what was tried"
WIDER = f"{END}, so a wider range may be better"
DROPOUT = "space: {head.dropout: [0, 0.2, 0.4]}"
GROUP = "space: {train.groups.head.lr: [x0.1, x0.3, x1], train.schedule.warmup.steps: [2]}"
ORDERLESS = "space: {train.schedule: [null, {warmup: {steps: 2}}]}"


@pytest.mark.parametrize(
    ("tune", "found", "expected"),
    [
        # below a dropout of 0 there is nothing; softmax has none
        (DROPOUT, ([9], [1, 9, 9], [9, 9, 1]), f"{WIDER}: MoS 3: head.dropout 0.4, the highest."),
        ("trials: 16, space: {train.lr: {choice: [0.5, 1, 2]}}", ([1, 9, 9], [9, 1, 9], [9, 9, 1]), ""),
        (ORDERLESS, ([8, 9], [9, 8], None), ""),
        (GROUP, ([7, 8, 9], [9, 7, 8], None), f"{WIDER}: softmax: groups.head.lr x0.1, the lowest."),
    ],
)
def test_a_value_at_an_end_of_what_was_tried_is_named(tuned, tune, found, expected):
    suite = tuned(tune, *found)
    text = tabulated(suite)
    assert notes(text, END) == ([expected] if expected else [])
    assert ("schedule {warmup: {steps: tuned}}" in text) == ("groups {head: {lr: tuned}}" in text) == (tune == GROUP)
    assert bool(learning.keys(suite)) == (tune != ORDERLESS and "choice" not in tune)  # which have a plot
    assert bool(notes(text, "Learning rate not tuned per head")) == ("train.lr" not in tune)


def test_a_choice_that_its_records_contradict_is_named_and_cannot_be_judged(tuned, record_of):
    suite = tuned(LR, *[[9, 9, 1, 9]] * 3)
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


def test_where_tuning_is_too_coarse_nothing_is_decided(suite_of, record_of):
    text = SUITE.replace("[1, 2]", "[1, 2, 3, 4, 5, 6]").replace("TUNE", "space: {train.lr: [0.5, 1, 2]}")
    # the middle is the best by far: between the values it may be 1.5 % lower
    suite = handmade.chosen(suite_of(text), *[[9, 8, 9]] * 3)
    levels = {"softmax": 100.0, "mos": 99.5}
    made = [record_of(each, test_ppl=levels[each.head.name] + each.seed**2 % 7 / 100) for each in suite.trials]
    found = find(evidence(suite, made))
    assert [str(each.judged) for each in found.compared.values()] == ["undecided: coarse tuning"] * 2
    assert outcome.sentences(found, found.rows)[0] == "Nothing is decided: coarse tuning."
