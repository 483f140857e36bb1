"""What is drawn, by the data of the axes; the files: the same bytes each time, harmless text, nothing stale."""

import xml.etree.ElementTree as ElementTree
from functools import partial
from pathlib import Path

import handmade
import matplotlib
import numpy as np
import pytest
from bundles import timing_of
from handmade import learned
from matplotlib.collections import LineCollection

from harness.records.sidecars import TokenScores
from harness.report import outputs
from harness.report.evidence import Evidence
from harness.report.figures import comparison, learning, plots
from harness.report.figures.comparison import front
from harness.report.figures.lines import PlotPoint
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


@pytest.fixture
def suite(suite_of):
    return suite_of(SUITE)


@pytest.fixture
def made(suite, record_of):
    """A record for each trial: test ppl 100, 104 for softmax, 80, 84 for K = 2 and 90, 94 for K = 5."""

    def record(index, trial):
        ppl = [100.0, 104.0, 80.0, 84.0, 90.0, 94.0][index]
        found = record_of(trial, test_ppl=ppl, valid_ppl=ppl, train_ms_per_batch=10.0 + index // 2)
        return learned(found, *(ppl + 100.0 / epoch for epoch in (1, 2, 3)))

    return [record(index, trial) for index, trial in enumerate(suite.trials)]


@pytest.fixture
def scores(monkeypatch):
    """Trials have kept what each token cost: mixtures gain a nat on new words with seed 1, and two with seed 2."""

    def of(evidence, trial_id):
        spec = evidence.records[trial_id].spec
        better = 0.0 if spec.head.name == "softmax" else spec.seed
        return TokenScores(
            nll=np.array([5.0 - better, 3.0, 2.0, 2.0], dtype=np.float32),
            count=np.array([0, 5, 5, 5], dtype=np.int32),
            offset=np.array([0, 1, 2, 3], dtype=np.int32),
        )

    monkeypatch.setattr(Evidence, "token_scores", of)


@pytest.fixture
def kinds(monkeypatch):
    """A function: draw these kinds only, for the sake of time."""

    def keep(*names: str) -> None:
        known, left_out = plots._kinds, KINDS.keys() - {*names}
        monkeypatch.setattr(plots, "_kinds", lambda *of: [kind for kind in known(*of) if kind.name not in left_out])

    return keep


def drawn(draw, evidence, rows=None):
    with settings():
        return draw(rows or evidence.rows, evidence)


def lines(axes) -> dict[str, list[tuple[float, float]]]:
    """What the legend names -> its points."""
    found = {}
    for line, label in zip(*axes.get_legend_handles_labels(), strict=True):
        found[label] = [(round(float(x), 3), round(float(y), 3)) for x, y in line.get_xydata()]
    return found


def bars(axes) -> list[tuple[float, float]]:
    """The ends of all bars."""
    found = [each for each in axes.collections if isinstance(each, LineCollection)]
    return [tuple(map(float, segment[:, 1])) for each in found for segment in each.get_segments()]


def heights(axes) -> dict[str, list[float]]:
    return {label: [y for _, y in points] for label, points in lines(axes).items()}


def test_every_kind_of_plot_is_drawn_where_there_is_everything(suite, made, scores):
    found = plots.draw(find(handmade.evidence(suite, made)), "small, version 1")
    assert {plot.name: plot.title for plot in found} == KINDS
    for plot in found:  # what is drawn of a row has its number, and no id is there twice
        ids = [element.get("id") for element in ElementTree.fromstring(plot.svg).iter() if element.get("id")]
        assert len(set(ids)) == len(ids)
        assert {"row-2-0"} <= {*ids}, plot.name


def test_by_mixtures_shows_the_means_the_ranges_and_the_band_of_the_baseline(suite, made):
    axes, caption = drawn(by_mixtures, handmade.evidence(suite, made))
    assert lines(axes)["MoS 2 to MoS 5"] == [(2, 82), (5, 92)]  # two seeds that differ by 4
    assert bars(axes) == [(80, 84), (90, 94)]
    (band,) = axes.patches
    assert (band.get_y(), band.get_y() + band.get_height()) == (100, 104)
    assert heights(axes)["baseline: softmax"] == [102, 102]
    assert "bars from the lowest seed to the highest; the band is that of softmax" in caption
    assert axes.get_ylabel() == "test perplexity\nmean; bars: lowest to highest seed"


def test_heads_of_one_class_are_told_apart_by_their_other_parameters_and_stand_side_by_side(suite_of, record_of):
    suite = suite_of(
        SUITE.replace(
            "  - mos:", "  - moc: {num_mixtures: 2}\n  - mos: {num_mixtures: [2, 5], gate: constant}\n  - mos:"
        )
    )
    axes, _ = drawn(by_mixtures, handmade.evidence(suite, [record_of(each, test_ppl=9.0) for each in suite.trials]))
    found = {label: [x for x, _ in points] for label, points in lines(axes).items()}
    # neighbours are a sixtieth of all values apart, 3 / 60
    assert found == {
        "MoC 2": [1.95],
        "MoS 2, constant gate to MoS 5, constant gate": [2, 5],
        "MoS 2 to MoS 5": [2.05, 5.05],
        "baseline: softmax": [0, 1],
    }


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
    assert lines(axes)["affine softmax, rank 2 to affine softmax, rank 4"] == [(2, 99), (4, 90)]


def test_one_seed_is_said(suite, made):
    axes, _ = drawn(comparison.by_size, handmade.evidence(suite, made[::2]))  # seed 1 of each row
    assert axes.get_ylabel() == "test perplexity\none seed"


@pytest.mark.parametrize(("counting", "expected"), [("", True), ("eos", False)])
def test_printed_values_are_stars_where_tokens_are_counted_alike(counting, expected, suite, made):
    about = {"source": "paper/1", "counting": counting}  # of markov, whose rule of counting is ''
    cell = handmade.printed_cell(head="mos", params={"num_mixtures": 5}, value="89.5", **about)
    evidence = handmade.evidence(suite, made, PrintedNumbers((cell,), ("paper/1: the paper, 2021",)))
    for draw, x in ((by_mixtures, 5), (comparison.by_size, suite.candidate_of(suite.trials[4]).params[0])):
        axes, _ = drawn(draw, evidence)
        assert lines(axes).get("the paper, 2021") == ([(x, 89.5)] if expected else None)
    axes, _ = drawn(comparison.by_time, evidence)  # a printed time is of another device
    assert "the paper, 2021" not in lines(axes)


def test_perplexity_against_time_has_the_pareto_front(suite, made):
    axes, caption = drawn(comparison.by_time, handmade.evidence(suite, made))
    # softmax 102 at 10 ms, K = 2 82 at 11 ms; K = 5, 92 at 12 ms, is beaten in both
    assert lines(axes) == {
        "softmax": [(10, 102)],
        "MoS 2": [(11, 82)],
        "MoS 5": [(12, 92)],
        "Pareto front": [(10, 102), (11, 82)],
    }
    assert bars(axes) == [(100, 104), (80, 84), (90, 94)]
    assert "a processor" in caption


def test_no_point_of_the_front_is_beaten_in_both_and_a_front_of_one_row_is_no_line(suite, made):
    told = [PlotPoint(x=x, y=y, low=y, high=y) for x, y in [(1, 9), (2, 9), (2, 7), (3, 8), (4, 7), (5, 1)]]
    assert [(p.x, p.y) for p in front(told)] == [(1, 9), (2, 7), (5, 1)]
    # softmax, the smallest model, is also the best one here
    better = [
        each.model_copy(update={"metrics": {**each.metrics, "test_ppl": 50.0 + n}}) for n, each in enumerate(made)
    ]
    axes, caption = drawn(comparison.by_size, handmade.evidence(suite, better))
    assert "Pareto front" not in lines(axes)
    assert "Pareto" not in caption


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


def test_gains_are_the_row_less_the_baseline_by_band_over_shared_seeds(suite, made, scores):
    axes, caption = drawn(plots._by_frequency, handmade.evidence(suite, made[:-1]))  # K = 5 has seed 1 only
    assert heights(axes) == {"MoS 2": [-1.5, 0], "MoS 5": [-1, 0], "0: softmax": [0, 0]}
    assert bars(axes) == [(-2, -1), (0, 0)]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0\n25 %", "1-9\n75 %"]
    assert axes.get_ylabel().split("\n") == [
        "Change of loss against softmax",
        "(nats per token; below 0 is better)",
        "mean; bars: lowest to highest seed",
    ]
    assert "1 or more" in caption
    axes, _ = drawn(plots._by_position, handmade.evidence(suite, made))
    assert heights(axes)["MoS 2"] == [-1.5, 0, 0]  # of the first token, the second, and the third and fourth


def test_scores_that_are_of_two_splits_are_a_reason(suite, made, monkeypatch):
    def of(evidence, trial_id):
        count = np.array([made[0].id == trial_id, 1], dtype=np.int32)
        return TokenScores(nll=np.zeros(2, dtype=np.float32), count=count, offset=count)

    monkeypatch.setattr(Evidence, "token_scores", of)
    reason = drawn(plots._by_frequency, handmade.evidence(suite, made))
    assert reason == "the scores of tokens are of two test splits; expected those of one"


def test_curves_are_changes_against_the_baseline_seed_by_seed(suite, made):
    # softmax 100 and 200; K = 2 is 10 % and 20 % below at epoch 1, 20 % and 20 % at epoch 2; K = 5 is equal
    curves = [(100.0, 100.0), (200.0, 200.0), (90.0, 80.0), (160.0, 160.0), (100.0, 100.0), (200.0, 200.0)]
    records = [learned(record, *curve) for record, curve in zip(made, curves, strict=True)]
    axes, caption = drawn(learning.curves, handmade.evidence(suite, records))
    assert heights(axes) == {
        "softmax": [0, 0],
        "MoS 2": [round(100 * ((0.9 * 0.8) ** 0.5 - 1), 3), -20],
        "MoS 5": [0, 0],
    }
    band = {(x, round(float(y), 3)) for x, y in axes.collections[0].get_paths()[0].vertices}
    assert {(1, -10), (1, -20), (2, -20)} == band
    assert axes.get_ylabel().startswith("validation perplexity\nagainst softmax, %\n")
    assert "the mean over shared seeds" in caption
    axes, _ = drawn(learning.curves, handmade.evidence(suite, [records[0], records[3]]))  # of K = 2 another seed
    assert list(lines(axes)) == ["softmax"]


def test_a_curve_is_the_mean_over_seeds_as_far_as_all_reach_and_its_second_half_fits_the_axis(suite_of, made):
    suite = suite_of(SUITE.replace("table: {baseline: softmax}", "table: {baseline: null}"))
    records = [learned(made[0], 900.0, 60.0, 50.0, 40.0), learned(made[1], 1100.0, 70.0, 60.0)]
    axes, _ = drawn(learning.curves, handmade.evidence(suite, records))
    assert lines(axes) == {"softmax": [(1, 1000), (2, 65), (3, 55)]}
    low, high = axes.get_ylim()
    assert 40 < low < 50 < 70 < high < 100


def test_curves_show_printed_values_as_stars_within_the_axes(suite, made):
    about = {"metric": "valid_ppl", "weights": "", "source": "code2021/curve"}
    values = ((None, "20"), (1, "900.0"), (3, "40.0"), (3, "41.0"), (7, "30.0"))
    cells = [handmade.printed_cell(**about, value=value, epoch=epoch) for epoch, value in values]
    printed = PrintedNumbers(tuple(cells), ("code2021/curve: the code of its authors, 2021",))
    axes, _ = drawn(learning.curves, handmade.evidence(suite, made, printed))
    stars = [line for line in axes.lines if line.get_marker() == "*"]
    assert [tuple(*line.get_xydata()) for line in stars] == [(1, 900), (3, 40)]  # ours have three epochs
    assert {line.get_color() for line in stars} == {axes.lines[0].get_color()}  # that of the row that they are of
    assert lines(axes)["the code of its authors, 2021"] == [(1, 900)]
    assert axes.get_ylabel().startswith("validation perplexity\nmean")
    low, high = axes.get_ylim()
    assert low < 40 < 900 < high


def test_curves_of_variants_of_a_backbone_are_in_one_plot_with_the_printed_end(suite_of, record_of, kinds):
    kinds("learning_curves_by_backbone")
    suite = suite_of(handmade.changed(("d_model: 8,", "d_model: [8, 16],")))
    ends = {trial.id: float(trial.backbone.params["d_model"]) for trial in suite.trials}
    made = [record_of(trial, valid_ppl=ends[trial.id], test_ppl=ends[trial.id]) for trial in suite.trials]
    made = [learned(record, ends[record.id] + 1, ends[record.id] + 2) for record in made]
    cell = handmade.printed_cell(metric="valid_ppl", weights="", value="7.5", source="paper/1")
    evidence = handmade.evidence(suite, made, PrintedNumbers((cell,), ("paper/1: the paper, 2021",)))
    rows = [row for row in evidence.rows if row.head == "softmax"]
    axes, _ = drawn(partial(learning.curves, of_backbones=True), evidence, rows)
    assert lines(axes) == {
        "lstm, d_model 8": [(1, 9), (2, 10)],
        "the paper, 2021": [(2, 7.5)],
        "lstm, d_model 16": [(1, 17), (2, 18)],
    }
    softmax, mos = [plot.name for plot in plots.draw(find(evidence), "suite")]
    assert softmax == "learning_curves_by_backbone.softmax"
    assert mos.startswith("learning_curves_by_backbone.MoS")


def test_of_many_rows_the_baseline_the_best_of_each_head_and_the_lowest_are_drawn(suite_of, record_of):
    heads = "  - mos: {num_mixtures: [" + ", ".join(map(str, range(2, 22))) + "]}\n  - moc: {num_mixtures: 2}"
    suite = suite_of(handmade.changed(("  - mos: {num_mixtures: 2}", heads), ("seeds: [1, 2]", "seeds: [1]")))
    ppl = [*(200.0 - index for index in range(21)), 250.0]
    made = [learned(record_of(trial, test_ppl=y), y, y) for trial, y in zip(suite.trials, ppl, strict=True)]
    evidence = handmade.evidence(suite, made)
    for draw, most in ((comparison.by_size, comparison.MOST), (learning.curves, comparison.FEW)):
        axes, caption = drawn(draw, evidence)
        lowest = [f"MoS {k}" for k in range(21 - (most - 2) + 1, 22)]
        assert [label for label in lines(axes) if label != "Pareto front"] == ["softmax", *lowest, "MoC 2"]
        kept = "the baseline, the best of each head and those with the lowest perplexity"
        assert f"Shown: {most} of 22 rows, {kept}." in caption


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


def test_a_plot_for_each_backbone_says_which(suite_of, record_of, kinds):
    kinds("perplexity_by_mixtures")
    other = "\n  - transformer_encoder: {d_model: 8, num_layers: 1, num_heads: 1, d_ff: 8}"
    suite = suite_of(SUITE.replace("dropout: 0.1}", f"dropout: 0.1}}{other}"))
    found = plots.draw(
        find(handmade.evidence(suite, [record_of(trial, test_ppl=9.0) for trial in suite.trials])), "small"
    )
    for plot, backbone in zip(found, ("lstm", "transformer_encoder"), strict=True):
        assert f">{backbone}; small<" in plot.svg
        assert plot.name == f"perplexity_by_mixtures.{backbone}"
        assert plot.title == f"Test perplexity by number of mixtures, {backbone}"


@pytest.mark.guards("plot-no-formula")
def test_what_a_label_says_is_text_and_a_plot_for_a_paper_has_no_title(suite, made, kinds):
    kinds("perplexity_by_mixtures")
    hostile, found = '</text><script>alert(1)</script> $\\frac{1}$ "\x1b[31m', find(handmade.evidence(suite, made))
    (plot,), (plain,) = plots.draw(found, hostile), plots.draw(found, hostile, titled=False)
    tree = ElementTree.fromstring(plot.svg)
    assert "script" not in {element.tag.removeprefix(SVG) for element in tree.iter()}
    told = [element.text for element in tree.iter(f"{SVG}text")]
    title = {KINDS["perplexity_by_mixtures"], '</text><script>alert(1)</script> $\\frac{1}$ "\\x1b[31m'}
    assert title <= {*told}
    plain_told = {element.text for element in ElementTree.fromstring(plain.svg).iter(f"{SVG}text")}
    assert plain_told == {*told} - title
    assert (shown("a\nb"), shown("_plugin"), len(shown("x" * 1_000))) == ("a\\nb", " _plugin", 60)


@pytest.mark.system
def test_the_same_records_give_the_same_bytes_whatever_the_users_settings(suite, made, kinds):
    kinds("perplexity_by_mixtures", "perplexity_by_parameters")
    first = plots.draw(find(handmade.evidence(suite, made)), "small")
    files = plots.files_of(first, Path())
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None, "lines.linewidth": 9}):
        assert plots.files_of(plots.draw(find(handmade.evidence(suite, made)), "small"), Path()) == files
    for plot in first:
        png, pdf = (files[0][Path(f"{plot.name}.{ending}")] for ending in ("png", "pdf"))
        assert png.startswith(b"\x89PNG")
        assert pdf.startswith(b"%PDF")
        assert b"CreationDate" not in pdf
        assert b"/Type3" not in pdf
        assert "<dc:date>" not in plot.svg
        assert "Matplotlib v" not in plot.svg


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
