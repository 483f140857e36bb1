"""The numbers behind the plots, by hand."""

from types import SimpleNamespace

import handmade
import numpy as np
import pytest

from harness.records.sidecars import TokenScores
from harness.report import tokens
from harness.report.figures import comparison, learning
from harness.report.figures.comparison import Point, Series
from harness.report.printed_numbers import PrintedCell, PrintedNumbers
from harness.report.table_rows import rows

SUITE = handmade.changed(
    ("seeds: [1, 2]", "seeds: [1, 2, 3]"),
    ("  - mos: {num_mixtures: 2}", "  - mos: {num_mixtures: [5, 2]}\n  - moc: {num_mixtures: 2}"),
)
NOTHING = PrintedNumbers((), ())


def point(x: float, y: float) -> Point:
    return Point(x=x, y=y, low=y, high=y)


def test_perplexity_by_mixtures_is_a_series_for_each_head_in_the_order_of_k(suite_of, record_of):
    suite = suite_of(SUITE)
    made = {trial.id: record_of(trial, test_ppl=100.0) for trial in suite.trials}
    found = comparison.series_by("num_mixtures", rows(suite, made), NOTHING)
    assert {series.label: [each.x for each in series.points] for series in found} == {"MoS": [2, 5], "MoC 2": [2]}


def test_heads_of_one_name_are_told_apart_by_their_other_parameters(suite_of, record_of):
    suite = suite_of(SUITE.replace("  - moc:", "  - mos: {num_mixtures: [2, 5], dropout: 0.5}\n  - moc:"))
    made = {trial.id: record_of(trial, test_ppl=100.0) for trial in suite.trials}
    found = comparison.series_by("num_mixtures", rows(suite, made), NOTHING)
    assert [(series.label, len(series.points)) for series in found] == [
        ("mos", 2),
        ("mos(dropout=0.5)", 2),
        ("MoC 2", 1),
    ]


@pytest.mark.parametrize(("counting", "expected"), [("", 90.0), ("eos", None), ("sos_eos", None)])
def test_a_printed_value_counts_only_where_tokens_are_counted_alike(counting, expected, suite_of, record_of):
    suite = suite_of(SUITE)  # of markov, whose boundary is ''
    about = {"corpus": "markov", "backbone": "lstm", "head": "mos", "weights": "best", "note": ""}
    cell = PrintedCell(**about, params={"num_mixtures": 5}, metric="test_ppl", value="90.0", counting=counting)
    made = {trial.id: record_of(trial, test_ppl=100.0) for trial in suite.trials}
    mos = comparison.series_by("num_mixtures", rows(suite, made), PrintedNumbers((cell,), ()))[0]
    assert {each.x: each.printed for each in mos.points} == {2: None, 5: expected}


def test_a_curve_is_the_mean_over_seeds_as_far_as_all_of_them_reach(suite_of, record_of):
    suite = suite_of(SUITE)
    curves = [(90.0, 60.0, 50.0), (110.0, 70.0), (100.0, 80.0, 40.0)]
    made = {
        trial.id: handmade.learned(record_of(trial, test_ppl=1.0), *curve)
        for trial, curve in zip(suite.trials[:3], curves, strict=True)
    }
    series = learning.curve(rows(suite, made)[0], NOTHING)
    assert [(p.x, p.y, p.low, p.high) for p in series.points] == [(1, 100, 90, 110), (2, 70, 60, 80)]
    assert learning.curve(rows(suite, made)[1], NOTHING) is None


def test_a_plot_of_curves_shows_half_of_the_shortest_one():
    def series(*values):
        found = tuple(point(x, y) for x, y in enumerate(values, 1))
        return Series(label="", points=found, seeds=1)

    short = series(900.0, 800.0, 700.0, 600.0)  # within twice 600 from epoch 1 on
    steep = series(*[900.0] * 8, 100.0, 100.0)  # within twice 100 from epoch 9 on; half of it is from epoch 5 on
    assert learning.readable_from([short, steep]) == 2
    assert len(learning.since(short, learning.readable_from([short, steep])).points) == 3
    assert learning.readable_from([steep]) == 5


@pytest.mark.parametrize(("counting", "expected"), [("", [None, 65.0, None]), ("eos", [None, None, None])])
def test_a_curve_has_the_printed_values_of_its_epochs(counting, expected, suite_of, record_of):
    suite = suite_of(SUITE)  # of markov, whose boundary is ''
    about = {"corpus": "markov", "backbone": "lstm", "head": "softmax", "params": {}, "weights": "", "note": ""}
    cells = [
        PrintedCell(**about, metric="valid_ppl", value=value, counting=counting, epoch=epoch)
        for epoch, value in ((None, "20"), (2, "65"), (2, "66"), (9, "30"))
    ]
    made = {trial.id: handmade.learned(record_of(trial, test_ppl=1.0), 90.0, 60.0, 50.0) for trial in suite.trials[:3]}
    series = learning.curve(rows(suite, made)[0], PrintedNumbers(tuple(cells), ()))
    assert [point.printed for point in series.points] == expected


def test_no_point_of_the_front_is_beaten_in_both():
    told = [point(1, 9), point(2, 9), point(2, 7), point(3, 8), point(4, 7), point(5, 1)]
    assert [(p.x, p.y) for p in comparison.front(told)] == [(1, 9), (2, 7), (5, 1)]
    assert comparison.front([]) == []


def test_a_gain_is_the_row_less_its_baseline_averaged_over_shared_seeds(suite_of, record_of):
    suite = suite_of(SUITE)
    made = {
        trial.id: record_of(trial, test_ppl=1.0)
        for trial in suite.trials
        if (trial.head.name, trial.seed) != ("mos", 3)
    }
    lines = rows(suite, made)
    count, offset = np.array([0, 5, 50], dtype=np.int32), np.array([0, 1, 2], dtype=np.int32)

    def scores(trial_id):
        spec = made[trial_id].spec
        nll = [4.0, 3.0, 2.0] if spec.head.name == "softmax" else [4.0 - spec.seed, 3.0, 2.5]
        return TokenScores(nll=np.array(nll, dtype=np.float32), count=count, offset=offset)

    of = SimpleNamespace(token_scores=scores)
    kinds = (tokens.by_frequency, tokens.by_position)
    (gain,), (other,) = (comparison.gains([lines[1]], lines[0], of, bands_of) for bands_of in kinds)
    # of seeds 1 and 2 the first token's difference is -1 and -2
    assert (gain.row, gain.seeds) == (lines[1], 2)
    for bands, labels in ((gain.bands, ("0", "1-9", "10-99")), (other.bands, ("0", "1", "2-3"))):
        assert tuple(band.label for band in bands) == labels
        assert [(band.mean, band.low, band.high) for band in bands] == [(-1.5, -2, -1), (0, 0, 0), (0.5, 0.5, 0.5)]


def test_there_is_no_gain_where_one_trial_has_kept_no_scores(suite_of, record_of):
    suite = suite_of(SUITE)
    made = {trial.id: record_of(trial, test_ppl=1.0) for trial in suite.trials}
    lines = rows(suite, made)
    nothing = SimpleNamespace(token_scores=lambda trial_id: None)
    assert comparison.gains(lines[1:3], lines[0], nothing, tokens.by_frequency) == []


def _trial(suite, id_):
    return next(trial for trial in suite.trials if trial.id == id_)
