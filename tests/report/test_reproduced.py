"""Whether a printed number is reproduced: the answer, and where the table of a suite shows it."""

from dataclasses import replace

import handmade
import pytest

from harness.report.printed_numbers import PrintedNumbers, in_short, of_row

SUITE = handmade.changed(("seeds: [1, 2]", "seeds: [1, 2, 3]"), ("\n  - mos: {num_mixtures: 2}", ""))
CELL = handmade.printed_cell(tolerance=2.0, reason="one run")


@pytest.fixture
def judged(suite_of, record_of):
    """A function: test perplexities of the first seeds, cells, overrides -> the numbers with a tolerance."""

    def judge(values, *cells, overrides=(), status="ok", **metrics):
        suite = suite_of(SUITE, *overrides)
        trials = suite.trials[: len(values)]
        made = [record_of(t, status, test_ppl=ppl, **metrics) for t, ppl in zip(trials, values, strict=True)]
        evidence = handmade.evidence(suite, made, PrintedNumbers(cells or (CELL,), ()))
        (row,) = evidence.rows
        return of_row(row, evidence.printed, changed=bool(overrides))

    return judge


@pytest.mark.parametrize(
    ("values", "answer", "difference"),
    [
        ((101.0, 102.0, 103.0), "yes", 2.0),  # the mean is at the bound, one seed is beyond it
        ((101.0, 102.0, 103.3), "no", 2.1),
        ((97.9, 98.0, 98.1), "yes", -2.0),
        ((97.8, 97.9, 98.0), "no", -2.1),
        ((100.5,), "yes so far", 0.5),  # two seeds are not finished
        ((101.0, 106.0), "no so far", 3.5),
    ],
)
def test_the_mean_over_seeds_is_compared_with_the_printed_number(judged, values, answer, difference):
    (found,) = judged(values)
    assert (found.answer, found.difference) == (answer, pytest.approx(difference))
    assert (len(found.values), found.seeds) == (len(values), 3)


def test_without_a_finished_trial_it_is_not_run_and_without_an_ok_one_it_has_failed(judged):
    (found,) = judged(())
    assert (found.answer, found.mean, found.difference) == ("not run", None, None)
    (found,) = judged((100.0,), status="diverged")
    assert (found.answer, found.mean) == ("failed", None)


@pytest.mark.parametrize("override", ["train.epochs=1", "train.batch_size=2"])
def test_a_changed_suite_never_answers_yes_or_no(judged, override):
    assert [each.answer for each in judged((100.0,), overrides=[override])] == ["not run in full"]
    assert [each.answer for each in judged((500.0,), overrides=[override])] == ["not run in full"]
    assert [each.answer for each in judged((), overrides=[override])] == ["not run"]


def test_the_weights_that_the_paper_tested_are_compared(judged):
    last = replace(CELL, weights="last", tolerance=0.1)
    (found,) = judged((500.0,), last, last_test_ppl=100.0)
    assert (found.answer, found.values) == ("yes so far", (100.0,))


@pytest.mark.parametrize(
    "cell",
    [
        replace(CELL, tolerance=None),
        replace(CELL, counting="sos_eos"),
        replace(CELL, corpus="ptb"),
        replace(CELL, params={"projection": True}),
        replace(CELL, value="about 100"),
    ],
    ids=["no tolerance", "counted otherwise", "another corpus", "another head", "no number"],
)
def test_a_number_that_is_not_to_be_reproduced(judged, cell):
    assert judged((100.0,), cell) == []


@pytest.fixture
def curves(suite_of, record_of):
    """A suite with two seeds whose curves are 300, 104, 52 and 500, 108, 54, and its printed curve."""
    suite = suite_of(SUITE)
    made = [
        handmade.learned(record_of(trial, test_ppl=1.0), *each)
        for trial, each in zip(suite.trials, ((300.0, 104.0, 52.0), (500.0, 108.0, 54.0)), strict=False)
    ]
    cells = [
        replace(CELL, metric="valid_ppl", value=value, epoch=epoch, tolerance=tolerance)
        for epoch, value, tolerance in ((1, "200", None), (2, "100", 5.0), (3, "50", 6.0), (4, "40", 5.0))
    ]
    return suite, made, PrintedNumbers(tuple(cells), ())


def test_of_a_curve_each_epoch_with_a_tolerance_is_compared(curves):
    suite, made, printed = curves
    evidence = handmade.evidence(suite, made, printed)
    found = of_row(evidence.rows[0], printed, changed=False)
    assert [(each.metric, each.mean, each.answer) for each in found] == [
        ("valid ppl after epoch 2", 106.0, "no so far"),
        ("valid ppl after epoch 3", 53.0, "yes so far"),
        ("valid ppl after epoch 4", None, "failed"),
    ]
    assert in_short(found) == "no so far (1 of 3, at most +6.00 %)"
    assert in_short(found[1:2]) == "yes so far (+6.00 %)"
    assert in_short(found[1:]) == "failed (1 of 2, at most +6.00 %)"
    assert in_short([]) == ""


def table(suite_of, record_of, cell, *values):
    suite = suite_of(SUITE)
    made = [record_of(trial, test_ppl=ppl) for trial, ppl in zip(suite.trials, values, strict=False)]
    return handmade.tabulated(suite, made, PrintedNumbers((cell,), ()))


def test_the_table_of_a_suite_has_a_column_and_a_note(suite_of, record_of):
    shown = table(suite_of, record_of, CELL, 101.0, 102.0)
    assert handmade.cells(shown)[0]["reproduced"] == "yes so far (+1.50 %)"
    note = "- Reproduced, softmax: test ppl within 2 % of 100 (one run): yes so far, +1.50 %, 2 of 3 seeds.\n"
    assert note in shown


@pytest.mark.parametrize(("differs", "cause"), [("", "cause not known"), ("clip of the sum", "clip of the sum")])
def test_a_number_that_is_not_reproduced_has_its_cause_in_the_note(suite_of, record_of, differs, cause):
    shown = table(suite_of, record_of, replace(CELL, differs=differs), 110.0)
    assert handmade.cells(shown)[0]["reproduced"] == "no so far (+10.00 %)"
    assert f"(one run): no so far, +10.00 %, 1 of 3 seeds; {cause}.\n" in shown


def test_before_a_run_the_column_says_so(suite_of, record_of):
    shown = table(suite_of, record_of, CELL)
    assert handmade.cells(shown)[0]["reproduced"] == "not run"
    assert "test ppl within 2 % of 100 (one run): not run.\n" in shown


def test_a_table_without_a_tolerance_has_no_such_column(suite_of, record_of):
    shown = table(suite_of, record_of, replace(CELL, tolerance=None), 100.0)
    assert "printed test ppl" in handmade.cells(shown)[0]
    assert "reproduced" not in handmade.cells(shown)[0]
    assert "Reproduced" not in shown
