"""Whether a printed number is reproduced: the answer, and where the table of a suite shows it."""

from dataclasses import replace

import handmade
import pytest

from harness.report.printed_numbers import PrintedNumbers, in_short, of_row

SUITE = handmade.changed(("seeds: [1, 2]", "seeds: [1, 2, 3]"), ("\n  - mos: {num_mixtures: 2}", ""))
CELL = handmade.printed_cell(tolerance=2.0, reason="one run")


@pytest.fixture
def shown(suite_of, record_of):
    """A function: test perplexities of the first seeds, a cell, overrides -> the numbers with a tolerance, a table."""

    def make(values, cell=CELL, overrides=(), status="ok", **metrics):
        suite = suite_of(SUITE, *overrides)
        pairs = zip(suite.trials, values, strict=False)
        made = [record_of(trial, status, test_ppl=ppl, **metrics) for trial, ppl in pairs]
        evidence = handmade.evidence(suite, made, PrintedNumbers((cell,), ()))
        (row,) = evidence.rows
        found = of_row(row, evidence.printed, changed=bool(overrides))
        return found, handmade.tabulated(suite, made, evidence.printed)

    return make


@pytest.mark.parametrize(
    ("values", "more", "answer", "difference"),
    [
        ((101.0, 102.0, 103.0), {}, "yes", 2.0),  # the mean is at the bound, one seed is beyond it
        ((101.0, 102.0, 103.3), {}, "no", 2.1),
        ((97.9, 98.0, 98.1), {}, "yes", -2.0),
        ((97.8, 97.9, 98.0), {}, "no", -2.1),
        ((100.5,), {}, "yes so far", 0.5),  # two seeds are not finished
        ((101.0, 106.0), {}, "no so far", 3.5),
        ((), {}, "not run", None),
        ((100.0,), {"status": "diverged"}, "failed", None),
        # a changed suite never answers yes or no
        ((100.0,), {"overrides": ["train.epochs=1"]}, "not run in full", 0.0),
        ((500.0,), {"overrides": ["train.batch_size=2"]}, "not run in full", 400.0),
        ((), {"overrides": ["train.epochs=1"]}, "not run", None),
        # the weights that the paper tested are compared
        ((500.0,), {"cell": replace(CELL, weights="last"), "last_test_ppl": 100.0}, "yes so far", 0.0),
    ],
)
def test_the_mean_over_seeds_is_compared_with_the_printed_number(shown, values, more, answer, difference):
    (found,), _ = shown(values, **more)
    assert (found.answer, found.difference) == (answer, difference and pytest.approx(difference))
    assert (len(found.values), found.seeds) == (0 if answer == "failed" else len(values), 3)


def test_a_number_that_is_not_reproduced_has_its_cause(shown):
    for differs, cause in (("", "cause not known"), ("clip of the sum", "clip of the sum")):
        (found,), _ = shown((110.0,), replace(CELL, differs=differs))
        assert str(found).endswith(f": no so far, +10.00 %, 1 of 3 seeds; {cause}")


@pytest.mark.parametrize(
    "changes",
    [
        {"tolerance": None},
        {"counting": "sos_eos"},
        {"corpus": "ptb"},
        {"params": {"projection": True}},
        {"value": "about 100"},
    ],
    ids=str,
)
def test_a_number_that_is_not_to_be_reproduced_has_neither(shown, changes):
    found, table = shown((100.0,), replace(CELL, **changes))
    assert (found, "eproduced" in table) == ([], False)


def test_of_a_curve_each_epoch_with_a_tolerance_is_compared(suite_of, record_of):
    suite = suite_of(SUITE)
    curves = zip(suite.trials, ((300.0, 104.0, 52.0), (500.0, 108.0, 54.0)), strict=False)
    made = [handmade.learned(record_of(trial, test_ppl=1.0), *each) for trial, each in curves]
    cells = [
        replace(CELL, metric="valid_ppl", value=value, epoch=epoch, tolerance=tolerance)
        for epoch, value, tolerance in ((1, "200", None), (2, "100", 5.0), (3, "50", 6.0), (4, "40", 5.0))
    ]
    printed = PrintedNumbers(tuple(cells), ())
    found = of_row(handmade.evidence(suite, made, printed).rows[0], printed, changed=False)
    assert [(each.metric, each.mean, each.answer) for each in found] == [
        ("valid ppl after epoch 2", 106.0, "no so far"),
        ("valid ppl after epoch 3", 53.0, "yes so far"),
        ("valid ppl after epoch 4", None, "failed"),
    ]
    assert in_short(found) == "no so far (1 of 3, at most +6.00 %)"
    assert in_short(found[1:2]) == "yes so far (+6.00 %)"
    assert in_short(found[1:]) == "failed (1 of 2, at most +6.00 %)"
    assert in_short([]) == ""
