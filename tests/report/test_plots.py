"""What is drawn, by the data of the axes; the files: the same bytes each time, harmless text, nothing stale."""

import xml.etree.ElementTree as ElementTree
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import handmade
import matplotlib
import numpy as np
import pytest
from bundles import timing_of
from handmade import learned
from matplotlib.container import ErrorbarContainer

from harness.errors import RecordError
from harness.records.sidecars import TokenScores
from harness.report import outputs
from harness.report.figures import comparison, learning, plots
from harness.report.figures.looks import FAINT
from harness.report.figures.plots import LeftOut, Plot
from harness.report.figures.style import settings, shown
from harness.report.findings import find
from harness.report.printed_numbers import PrintedNumbers

SUITE = handmade.changed(("  - mos: {num_mixtures: 2}", "  - mos: {num_mixtures: [2, 5]}"))
KINDS = {
    "forest": "Change against the strongest control",
    "perplexity_by_time": "Test perplexity by training time",
    "perplexity_by_parameters": "Test perplexity by parameters",
    "perplexity_by_mixtures": "Test perplexity by number of mixtures",
    "learning_curves": "Learning curves",
    "gain_by_frequency": "Where the gain is: word frequency",
    "gain_by_position": "Where the gain is: place in the segment",
}
SVG = "{http://www.w3.org/2000/svg}"


by_mixtures = partial(comparison.by_parameter, "num_mixtures", "mixtures K")


class Kept:
    """An evidence whose trials have kept what each token cost: the heads after the first gain a nat on new words."""

    def __new__(cls, suite, made, **more):
        found = handmade.evidence(suite, made, **more)
        names = ["suite", "records", "timings", "interrupted", "outdated", "printed", "runs", "rows"]
        names += ["rows_without_point", "untuned_controls", "trials", "warn"]
        return SimpleNamespace(**{name: getattr(found, name) for name in names}, token_scores=cls.scores(found.records))

    @staticmethod
    def scores(records):
        def of(trial_id):
            better = 0.0 if records[trial_id].spec.head.name == "softmax" else 1.0
            return TokenScores(
                nll=np.array([5.0 - better, 3.0, 2.0, 2.0], dtype=np.float32),
                count=np.array([0, 5, 5, 5], dtype=np.int32),
                offset=np.array([0, 1, 2, 3], dtype=np.int32),
            )

        return of


@pytest.fixture
def suite(suite_of):
    return suite_of(SUITE)


@pytest.fixture
def no_baseline(suite_of):
    """The same without a baseline."""
    return suite_of(SUITE.replace("table: {baseline: softmax}", "table: {baseline: null}"))


@pytest.fixture
def made(suite, record_of):
    """A record for each trial: test ppl 100, 104 for softmax, 80, 84 for K = 2 and 90, 94 for K = 5."""

    def record(index, trial):
        ppl = [100.0, 104.0, 80.0, 84.0, 90.0, 94.0][index]
        found = record_of(trial, test_ppl=ppl, valid_ppl=ppl, train_ms_per_batch=10.0 + index // 2)
        return learned(found, *(ppl + 100.0 / epoch for epoch in (1, 2, 3)))

    return [record(index, trial) for index, trial in enumerate(suite.trials)]


@pytest.fixture
def kinds(monkeypatch):
    """A function: draw these kinds only, for the sake of time."""

    def keep(*names: str) -> None:
        known, left_out = plots._kinds, KINDS.keys() - {*names}
        monkeypatch.setattr(plots, "_kinds", lambda *of: [kind for kind in known(*of) if kind.name not in left_out])

    return keep


def bars(axes) -> dict[tuple[str, str], list[tuple[float, float, float, float]]]:
    """Marker and colour of each series with bars -> x, y and both ends of its bars."""
    found = {}
    for container in axes.containers:
        assert isinstance(container, ErrorbarContainer)
        line, _, (ends,) = container.lines
        spans = [segment[:, 1] for segment in ends.get_segments()]
        found[line.get_marker(), line.get_color()] = [
            (float(x), float(y), float(low), float(high))
            for (x, y), (low, high) in zip(line.get_xydata(), spans, strict=True)
        ]
    return found


def written(axes) -> list[str]:
    """The direct labels of a plot."""
    return [text.get_text() for text in axes.texts if text.get_text()]


def drawn(draw, evidence):
    with settings():
        return draw(evidence.rows, evidence)


def test_every_kind_of_plot_is_drawn_where_there_is_everything(suite, made):
    found = plots.draw(find(Kept(suite, made)), "small, version 1")
    assert {plot.name: plot.title for plot in found} == KINDS


def test_by_mixtures_shows_the_means_the_ranges_and_the_band_of_the_baseline(suite, made):
    axes, caption = drawn(by_mixtures, handmade.evidence(suite, made))
    expected = [(2, 82, 80, 84), (5, 92, 90, 94)]  # two seeds that differ by 4
    assert [point for series in bars(axes).values() for point in series] == expected
    (band,) = axes.patches
    assert (band.get_y(), band.get_y() + band.get_height()) == (100, 104)
    assert list(axes.lines[0].get_ydata()) == [102, 102]
    assert "bars from the lowest seed to the highest" in caption
    assert axes.get_ylabel() == "test perplexity\nmean; bars: lowest to highest seed"


def test_a_suite_with_low_rank_heads_has_a_plot_over_their_widths(suite_of, record_of, kinds):
    heads = "  - softmax: {projection: true, d_embed: [null, 2, 4]}\n  - mos: {num_mixtures: 2}"
    suite = suite_of(handmade.changed(("  - mos: {num_mixtures: 2}", heads)))
    ppl = {None: 80.0, 2: 99.0, 4: 90.0}
    made = [record_of(trial, test_ppl=ppl[trial.head.params.get("d_embed")]) for trial in suite.trials]
    evidence = handmade.evidence(suite, made)
    kinds()
    (plot,) = plots.draw(find(evidence), "small")
    assert plot.title == "Test perplexity by width of the output matrix"
    axes, _ = drawn(partial(comparison.by_parameter, "d_embed", "width"), evidence)
    assert list(bars(axes).values()) == [[(2, 99, 99, 99)], [(4, 90, 90, 90)]]


def test_two_seeds_with_equal_numbers_are_not_one_seed(suite, made):
    equal = [record.model_copy(update={"metrics": {**record.metrics, "test_ppl": 100.0}}) for record in made]
    axes, _ = drawn(comparison.by_size, handmade.evidence(suite, equal))
    assert axes.get_ylabel() == "test perplexity\nmean; bars: lowest to highest seed"
    axes, _ = drawn(comparison.by_size, handmade.evidence(suite, equal[::2]))  # seed 1 of each row
    assert axes.get_ylabel() == "test perplexity\none seed"


def test_printed_values_have_a_marker_of_their_own(suite, made):
    cell = handmade.printed_cell(head="mos", params={"num_mixtures": 5}, value="89.5")
    evidence = handmade.evidence(suite, made, PrintedNumbers((cell,), ()))
    for draw, x in ((by_mixtures, 5), (comparison.by_size, suite.params[suite.trials[4].id][0])):
        axes, _ = drawn(draw, evidence)
        (stars,) = (line for line in axes.lines if line.get_marker() == "*")
        assert [tuple(each) for each in stars.get_xydata()] == [(x, 89.5)]


def test_curves_begin_where_each_was_within_twice_its_lowest_value(no_baseline, made):
    # softmax is within twice 100 at epoch 2; the others within twice 80 at epoch 3
    curves = [(900, 190, 120, 110, 105, 100)] * 2 + [(900, 500, 150, 100, 90, 80)] * 4
    evidence = handmade.evidence(
        no_baseline, [learned(record, *curve) for record, curve in zip(made, curves, strict=True)]
    )
    axes, caption = drawn(learning.curves, evidence)
    assert [list(line.get_xdata()) for line in axes.lines] == [[3, 4, 5, 6]] * 3
    assert axes.get_xlabel() == "epoch (from 3 on)"
    assert "Left out: epochs before 3, in which a curve is above 2 times its lowest value." in caption
    axes, caption = drawn(learning.curves, handmade.evidence(no_baseline, made))
    assert [list(line.get_xdata()) for line in axes.lines] == [[1, 2, 3]] * 3
    assert (axes.get_xlabel(), "Left out" in caption) == ("epoch", False)


def test_curves_show_the_points_of_the_authors_with_their_source_from_the_first_one_on(suite, made):
    about = {"metric": "valid_ppl", "weights": "", "source": "code2021/curve"}
    cells = [handmade.printed_cell(**about, value=value, epoch=epoch) for epoch, value in ((1, "418.0"), (2, "191.0"))]
    printed = PrintedNumbers(tuple(cells), ("code2021/curve: the code of its authors, 2021",))
    slow = [learned(record, 600.0, 500.0, 150.0, 120.0, 110.0, 100.0) for record in made]
    axes, _ = drawn(learning.curves, handmade.evidence(suite, slow, printed))
    (stars,) = (line for line in axes.lines if line.get_marker() == "*")
    assert [tuple(each) for each in stars.get_xydata()] == [(1, 418), (2, 191)]
    assert stars.get_color() == axes.lines[0].get_color()  # that of the row that they are of
    assert list(axes.lines[0].get_xdata()) == [1, 2, 3, 4, 5, 6]  # epochs with a printed value are never left out
    legend = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert legend[-1] == "the code of its authors, 2021"


def test_curves_show_printed_values_as_stars_within_the_axes(suite, made):
    cells = [
        handmade.printed_cell(metric="valid_ppl", weights="", value=value, epoch=epoch)
        for epoch, value in ((1, "900.0"), (3, "40.0"), (7, "30.0"))
    ]
    axes, _ = drawn(learning.curves, handmade.evidence(suite, made, PrintedNumbers(tuple(cells), ())))
    (stars,) = (line for line in axes.lines if line.get_marker() == "*")
    assert [tuple(each) for each in stars.get_xydata()] == [(1, 900), (3, 40)]  # ours have three epochs
    low, high = axes.get_ylim()
    assert low < 40 < 900 < high


def test_curves_of_variants_of_a_backbone_are_in_one_plot_with_the_printed_end_as_a_line(suite_of, record_of, kinds):
    kinds("learning_curves_by_backbone")
    suite = suite_of(handmade.changed(("d_model: 8,", "d_model: [8, 16],")))

    ends = {trial.id: float(trial.backbone.params["d_model"]) for trial in suite.trials}
    made = [record_of(trial, valid_ppl=ends[trial.id], test_ppl=ends[trial.id]) for trial in suite.trials]
    made = [learned(record, ends[record.id] + 1, ends[record.id] + 2) for record in made]
    cell = handmade.printed_cell(metric="valid_ppl", weights="", value="7.5", source="paper/1")
    printed = PrintedNumbers((cell,), ("paper/1: the paper, 2021",))
    evidence = handmade.evidence(suite, made, printed)
    of_softmax = [row for row in evidence.rows if row.head == "softmax"]
    with settings():
        axes, _ = learning.curves(of_softmax, evidence, of_backbones=True)
    assert [list(line.get_ydata()) for line in axes.lines] == [[9, 10], [17, 18], [7.5, 7.5]]
    legend = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert legend == ["printed: 7.5 (the paper, 2021)"]
    assert written(axes) == ["d_model=8", "d_model=16"]
    assert axes.get_ylim()[0] < 7.5
    softmax, mos = [plot.name for plot in plots.draw(find(evidence), "suite")]
    assert softmax == "learning_curves_by_backbone.softmax"
    assert mos.startswith("learning_curves_by_backbone.MoS")


def test_perplexity_against_time_has_the_pareto_front(suite, made):
    axes, caption = drawn(comparison.by_time, handmade.evidence(suite, made))
    # softmax 102 at 10 ms, K = 2 82 at 11 ms; K = 5, 92 at 12 ms, is beaten in both
    assert list(bars(axes).values()) == [[(10, 102, 100, 104)], [(11, 82, 80, 84)], [(12, 92, 90, 94)]]
    (front,) = (line for line in axes.lines if line.get_drawstyle() == "steps-post")
    assert [tuple(each) for each in front.get_xydata()] == [(10, 102), (11, 82)]
    assert "a processor" in caption


def test_times_of_different_passes_are_not_in_one_plot(suite, made, kinds):
    kinds("perplexity_by_time")
    passes = ["first" if record.spec.head.name == "softmax" else "second" for record in made]
    timing = {
        record.id: timing_of(record, passed=name, weights_sha256="") for record, name in zip(made, passes, strict=True)
    }
    found = plots.draw(find(handmade.evidence(suite, made, timings=timing)), "small")
    assert [type(plot) for plot in found] == [LeftOut, Plot]  # softmax alone is no comparison
    assert found[1].title == "Test perplexity by training time, second"
    assert "one trial at a time" in found[1].caption


def test_gains_are_the_row_less_the_baseline_by_band_with_the_share_of_tokens(suite, made):
    axes, _ = drawn(plots._by_frequency, Kept(suite, made))
    for place in bars(axes).values():
        assert [y for _, y, _, _ in place] == [-1, 0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0\n25 %", "1-9\n75 %"]


def test_a_gain_has_an_axis_that_explains_itself_and_a_line_at_zero(suite, made):
    axes, _ = drawn(plots._by_frequency, Kept(suite, made))
    assert axes.get_ylabel().split("\n") == [
        "Change of loss against softmax",
        "(nats per token; below 0 is better)",
        "mean; bars: lowest to highest seed",
    ]
    assert [list(line.get_ydata()) for line in axes.lines].count([0, 0]) == 1
    assert written(axes) == ["MoS 2", "MoS 5", "0: softmax"]
    assert axes.get_ylim()[0] < 0 < axes.get_ylim()[1]


def test_an_axis_fits_the_figure_and_a_long_name_of_the_baseline_is_beside_its_line(suite_of, record_of):
    name = "softmax(projection=True, d_embed=48)"
    text = SUITE.replace("heads:", "heads:\n  - softmax: {projection: true, d_embed: 48}")
    suite = suite_of(text.replace("baseline: softmax", f"baseline: '{name}'"))
    made = [record_of(trial, test_ppl=9.0, valid_ppl=9.0) for trial in suite.trials]
    axes, _ = drawn(plots._by_frequency, Kept(suite, made))
    assert axes.get_ylabel().startswith("Change of loss against the baseline\n")
    assert written(axes)[-1] == "0: affine softmax, rank 48"
    axes.figure.canvas.draw()
    label, whole = axes.yaxis.label.get_window_extent(), axes.figure.bbox
    assert whole.y0 <= label.y0 < label.y1 <= whole.y1


def test_a_front_of_one_row_is_no_line_and_has_no_name(suite, made):
    # softmax, the smallest model, is also the best one here
    better = [
        each.model_copy(update={"metrics": {**each.metrics, "test_ppl": 50.0 + n}}) for n, each in enumerate(made)
    ]
    axes, caption = drawn(comparison.by_size, handmade.evidence(suite, better))
    assert not [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
    assert "Pareto" not in caption


def test_plots_for_a_paper_have_no_title_and_are_otherwise_the_same(suite, made, kinds):
    kinds("perplexity_by_mixtures")
    (titled,) = plots.draw(find(handmade.evidence(suite, made)), "small, version 1")
    (plain,) = plots.draw(find(handmade.evidence(suite, made)), "small, version 1", titled=False)
    for text in (KINDS["perplexity_by_mixtures"], "small, version 1"):
        assert f">{text}<" in titled.svg
        assert f">{text}<" not in plain.svg
    assert (plain.name, plain.caption) == (titled.name, titled.caption)


def test_scores_that_are_of_two_splits_are_a_reason(suite, made, monkeypatch):
    def refuse(*_):
        raise RecordError("the scores of tokens are of two test splits")

    monkeypatch.setattr(comparison, "gains", refuse)
    assert drawn(plots._by_frequency, Kept(suite, made)) == "the scores of tokens are of two test splits"


def test_a_plot_that_would_show_nothing_is_left_out_with_its_reason(suite_of, record_of):
    suite = suite_of(handmade.changed(("  - mos: {num_mixtures: 2}\n", ""), ("table: {baseline: softmax}\n", "")))
    found = plots.draw(find(handmade.evidence(suite, [record_of(suite.trials[0], test_ppl=9.0)])), "small")
    reasons = {plot.title: plot.reason for plot in found}
    assert list(reasons) == list(KINDS.values())[1:]  # one head has no baseline
    assert reasons[KINDS["perplexity_by_mixtures"]] == "no finished trial's head has num_mixtures"
    assert reasons[KINDS["learning_curves"]] == "no finished trial has a curve of two epochs"
    assert reasons[KINDS["perplexity_by_time"]] == "no trial is finished with a time"
    assert reasons[KINDS["perplexity_by_parameters"]].startswith("fewer than two rows")
    assert reasons[KINDS["gain_by_frequency"]].startswith("the suite names no baseline")


def test_of_many_rows_the_baseline_the_best_of_each_head_and_the_lowest_are_drawn_and_the_caption_says_so(
    suite_of, record_of
):
    heads = "  - mos: {num_mixtures: [" + ", ".join(map(str, range(2, 22))) + "]}\n  - moc: {num_mixtures: 2}"
    suite = suite_of(handmade.changed(("  - mos: {num_mixtures: 2}", heads), ("seeds: [1, 2]", "seeds: [1]")))
    ppl = [*(200.0 - index for index in range(21)), 250.0]
    made = [record_of(trial, test_ppl=each) for trial, each in zip(suite.trials, ppl, strict=True)]
    axes, caption = drawn(comparison.by_size, handmade.evidence(suite, made))
    shown = sorted(y for series in bars(axes).values() for _, y, _, _ in series)
    assert shown == [*(180.0 + index for index in range(comparison.MOST - 2)), 200.0, 250.0]  # softmax, and MoC 2
    kept = "the baseline, the best of each head and those with the lowest perplexity"
    assert f"Shown: {comparison.MOST} of 22 rows, {kept}." in caption


def test_of_very_many_rows_no_two_that_are_drawn_look_alike(suite_of, record_of):
    heads = "  - mos: {num_mixtures: [" + ", ".join(map(str, range(2, 82))) + "]}"
    suite = suite_of(handmade.changed(("  - mos: {num_mixtures: 2}", heads), ("seeds: [1, 2]", "seeds: [1]")))
    # the lowest are 7 rows apart, as far as markers repeat
    made = [record_of(trial, test_ppl=200.0 - 100 * (index % 7 == 0)) for index, trial in enumerate(suite.trials)]
    axes, _ = drawn(comparison.by_size, handmade.evidence(suite, made))
    looks = [(marker, colour) for marker, colour in bars(axes)]
    assert len(set(looks)) == comparison.MOST


def test_a_plot_for_each_backbone_says_which(suite_of, record_of, kinds):
    kinds("perplexity_by_mixtures")
    other = "\n  - transformer_encoder: {d_model: 8, num_layers: 1, num_heads: 1, d_ff: 8}"
    suite = suite_of(SUITE.replace("dropout: 0.1}", f"dropout: 0.1}}{other}"))
    found = plots.draw(
        find(handmade.evidence(suite, [record_of(trial, test_ppl=9.0) for trial in suite.trials])), "small"
    )
    for plot, backbone in zip(found, ("lstm", "transformer_encoder"), strict=True):
        assert f">{backbone}; small<" in plot.svg
    assert {plot.name: plot.title for plot in found} == {
        "perplexity_by_mixtures.lstm": "Test perplexity by number of mixtures, lstm",
        "perplexity_by_mixtures.transformer_encoder": "Test perplexity by number of mixtures, transformer_encoder",
    }


@pytest.mark.system
def test_the_same_records_give_the_same_bytes_whatever_the_users_settings(suite, made, kinds):
    kinds("perplexity_by_mixtures", "perplexity_by_parameters")
    first = plots.draw(find(Kept(suite, made)), "small")
    files = plots.files_of(first, Path())
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None, "lines.linewidth": 9}):
        assert plots.files_of(plots.draw(find(Kept(suite, made)), "small"), Path()) == files
    for plot in first:
        png, pdf = (files[0][Path(f"{plot.name}.{ending}")] for ending in ("png", "pdf"))
        assert png.startswith(b"\x89PNG")
        assert pdf.startswith(b"%PDF")
        assert b"CreationDate" not in pdf
        assert b"/Type3" not in pdf
        assert "<dc:date>" not in plot.svg
        assert "Matplotlib v" not in plot.svg


@pytest.mark.guards("plot-no-formula")
def test_what_a_label_says_is_text(suite, made, kinds):
    kinds("perplexity_by_mixtures")
    hostile = '</text><script>alert(1)</script> $\\frac{1}$ "\x1b[31m'
    (plot,) = plots.draw(find(handmade.evidence(suite, made)), hostile)
    tree = ElementTree.fromstring(plot.svg)
    assert "script" not in {element.tag.removeprefix(SVG) for element in tree.iter()}
    told = [element.text for element in tree.iter(f"{SVG}text")]
    assert '</text><script>alert(1)</script> $\\frac{1}$ "\\x1b[31m' in told


def test_labels_are_one_printable_line_that_a_legend_shows():
    assert shown("a\nb") == "a\\nb"
    assert shown("_plugin") == " _plugin"
    assert len(shown("x" * 1_000)) == 60


def _write(made, place) -> None:
    files, gone = plots.files_of(made, place)
    outputs.write(files, gone=gone)


def test_writing_changes_only_what_changed_and_removes_what_is_no_longer_drawn(tmp_path):
    one, two = (
        Plot(name=name, title="", caption="", svg=f"<svg>{name}</svg>", png=lambda: b"png", pdf=lambda: b"pdf")
        for name in ("one", "two")
    )
    _write([one, two], tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert sorted(before) == ["one.pdf", "one.png", "one.svg", "two.pdf", "two.png", "two.svg"]
    _write([one, LeftOut(title="two", reason="nothing")], tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == {
        name: time for name, time in before.items() if name.startswith("one")
    }


def test_curves_are_changes_against_the_baseline_seed_by_seed(suite, made):
    # softmax 100 and 200; K = 2 is 10 % and 20 % below at epoch 1, 20 % and 20 % at epoch 2; K = 5 is equal
    curves = [(100.0, 100.0), (200.0, 200.0), (90.0, 80.0), (160.0, 160.0), (100.0, 100.0), (200.0, 200.0)]
    records = [learned(record, *curve) for record, curve in zip(made, curves, strict=True)]
    axes, caption = drawn(learning.curves, handmade.evidence(suite, records))
    lines = [[round(y, 3) for y in line.get_ydata()] for line in axes.lines]
    assert lines[:3] == [[0, 0], [round(100 * ((0.9 * 0.8) ** 0.5 - 1), 3), -20], [0, 0]]
    band = {(x, round(float(y), 3)) for x, y in axes.collections[1].get_paths()[0].vertices}
    assert {(1, -10), (1, -20), (2, -20)} == band
    assert axes.get_ylabel().startswith("validation perplexity\nagainst softmax, %\n")
    assert written(axes) == ["softmax", "MoS 2", "MoS 5"]
    assert "the mean over shared seeds" in caption


def test_a_row_without_a_seed_of_the_baseline_has_no_change(suite, made):
    records = [learned(record, 100.0, 90.0) for record in [made[0], made[3]]]  # seed 1, and seed 2 of K = 2
    axes, _ = drawn(learning.curves, handmade.evidence(suite, records))
    assert written(axes) == ["softmax"]


def test_the_best_the_baseline_and_the_best_of_two_other_heads_are_in_colour_and_the_rest_is_thin(suite_of, record_of):
    heads = "  - mos: {num_mixtures: [2, 3, 5]}\n  - moc: {num_mixtures: [2, 3]}\n  - sigsoftmax"
    suite = suite_of(handmade.changed(("  - mos: {num_mixtures: 2}", heads)))
    ppl = dict(zip([trial.id for trial in suite.trials[::2]], (99.0, 70.0, 71.0, 72.0, 73.0, 74.0, 75.0), strict=True))
    made = [learned(record_of(trial, test_ppl=ppl[trial.id]), 200.0, ppl[trial.id]) for trial in suite.trials[::2]]
    evidence = handmade.evidence(suite, made)
    assert [row.head for row in learning.in_colour(evidence.rows, evidence)] == [
        "MoS 2",  # the best
        "softmax",  # the baseline, which is the worst
        "MoC 2",  # which MoS 3 and 5 are better than
        "sigsoftmax",
    ]
    axes, caption = drawn(learning.curves, evidence)
    assert sorted(written(axes)) == ["MoC 2", "MoS 2", "sigsoftmax", "softmax"]
    assert [line.get_color() for line in axes.lines].count(FAINT) == 3
    assert "thin: the other rows" in caption


def test_a_pale_curve_that_ends_far_off_leaves_the_axes(suite_of, record_of):
    heads = "  - mos: {num_mixtures: [2, 3, 4, 5, 6]}"
    suite = suite_of(handmade.changed(("  - mos: {num_mixtures: 2}", heads), ("seeds: [1, 2]", "seeds: [1]")))
    ends = [100.0, 98.0, 97.0, 96.0, 104.0, 190.0]
    made = [learned(record_of(trial, test_ppl=y), y, y) for trial, y in zip(suite.trials, ends, strict=True)]
    axes, _ = drawn(learning.curves, handmade.evidence(suite, made))
    low, high = axes.get_ylim()
    assert low < -4 < 4 < high < 20


def test_what_is_drawn_of_a_row_has_its_number_once(suite, made):
    found = [plot for plot in plots.draw(find(Kept(suite, made)), "small") if isinstance(plot, Plot)]
    assert len(found) == len(KINDS)
    for plot in found:
        ids = [element.get("id") for element in ElementTree.fromstring(plot.svg).iter() if element.get("id")]
        assert len(set(ids)) == len(ids)
        numbers = {id_.split("-")[1] for id_ in ids if id_.startswith("row-")}
        assert {"1", "2"} <= numbers <= {"0", "1", "2"}, plot.name  # where a baseline is a line, it may have none
