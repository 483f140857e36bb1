"""What is drawn and no planted suite (test_planted.py) shows, by the data of the axes; files; what fits into a plot."""

import xml.etree.ElementTree as ElementTree
from functools import partial
from pathlib import Path

import handmade
import matplotlib
import numpy as np
import pytest
from handmade import learned

from harness.errors import RecordError
from harness.records.sidecars import TokenScores
from harness.report import outputs
from harness.report.evidence import Evidence
from harness.report.figures import comparison, forest, learning, plots
from harness.report.figures.plots import LeftOut, Plot
from harness.report.figures.style import Frame, logarithmic, settings, shown
from harness.report.findings import find
from harness.report.printed_numbers import PrintedNumbers
from harness.report.study import Study

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


@pytest.fixture
def suite(suite_of):
    return suite_of(SUITE)


@pytest.fixture
def made(suite, record_of):
    """A record for each trial: test ppl 100, 104 for softmax, 80, 84 for K = 2 and 90, 94 for K = 5."""
    records = []
    for index, (trial, ppl) in enumerate(zip(suite.trials, (100.0, 104.0, 80.0, 84.0, 90.0, 94.0), strict=True)):
        found = record_of(trial, test_ppl=ppl, valid_ppl=ppl, train_ms_per_batch=10.0 + index // 2)
        records.append(learned(found, *(ppl + 100.0 / epoch for epoch in (1, 2, 3))))
    return records


@pytest.fixture
def scores(monkeypatch):
    """Trials have kept what each token cost: mixtures gain a nat on new words with seed 1, and two with seed 2."""

    def of(evidence, trial_id):
        spec = evidence.records[trial_id].spec
        better = 0.0 if spec.head.name == "softmax" else spec.seed
        nll, count = np.float32([5.0 - better, 3, 2, 2]), np.int32([0, 5, 5, 5])
        return TokenScores(nll=nll, count=count, offset=np.arange(4, dtype=np.int32))

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


def test_every_kind_of_plot_is_drawn_where_there_is_everything(suite, made, scores):
    found = plots.draw(find(handmade.evidence(suite, made)), "small, version 1")
    assert {plot.name: plot.title for plot in found} == KINDS
    for plot in found:  # what is drawn of a row has its number, and no id is there twice
        ids = [element.get("id") for element in ElementTree.fromstring(plot.svg).iter() if element.get("id")]
        assert len(set(ids)) == len(ids)
        assert {"row-2-0"} <= {*ids}, plot.name


def test_a_suite_with_low_rank_heads_has_a_plot_over_their_widths(suite_of, record_of, kinds):
    heads = "  - softmax: {projection: true, d_embed: [null, 2, 4]}\n  - mos: {num_mixtures: 2}"
    suite = suite_of(handmade.changed(("  - mos: {num_mixtures: 2}", heads)))
    ppl = {None: 80.0, 2: 99.0, 4: 90.0}
    made = [record_of(trial, test_ppl=ppl[trial.head.params.get("d_embed")]) for trial in suite.trials[::2]]
    evidence = handmade.evidence(suite, made)
    kinds()
    (plot,) = plots.draw(find(evidence), "small")
    assert plot.title == "Test perplexity by width of the output matrix"
    axes, _ = drawn(partial(comparison.by_parameter, "d_embed", "width"), evidence)
    assert lines(axes)["affine softmax, rank 2 to affine softmax, rank 4"] == [(2, 99), (4, 90)]
    assert axes.get_ylabel() == "test perplexity\none seed"


@pytest.mark.parametrize(("values", "expected"), [((1.0, 3.0), "linear"), ((1.0, 3.1), "log"), ((0.0, 9.0), "linear")])
def test_an_axis_is_logarithmic_above_a_factor_of_three(values, expected):
    with settings():
        on = comparison.lines([], "x", "y")
        logarithmic(on.xaxis, values)
    assert on.get_xscale() == expected


def test_gains_are_the_row_less_the_baseline_by_band_over_shared_seeds(suite, made, scores):
    axes, caption = drawn(plots._by_frequency, handmade.evidence(suite, made[:-1]))  # K = 5 has seed 1 only
    heights = {label: [y for _, y in points] for label, points in lines(axes).items()}
    assert heights == {"MoS 2": [-1.5, 0], "MoS 5": [-1, 0], "0: softmax": [0, 0]}
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0\n25 %", "1-9\n75 %"]
    assert "1 or more" in caption
    axes, _ = drawn(plots._by_position, handmade.evidence(suite, made))
    # of the first token, the second, and the third and fourth
    assert [y for _, y in lines(axes)["MoS 2"]] == [-1.5, 0, 0]


def test_curves_are_changes_against_the_baseline_seed_by_seed(suite, made):
    # softmax 100 and 200; K = 2 is 10 % and 20 % below at epoch 1, 20 % and 20 % at epoch 2; K = 5 is equal, and ends
    # with seed 1 after one epoch
    curves = [(100.0, 100.0), (200.0, 200.0), (90.0, 80.0), (160.0, 160.0), (100.0,), (200.0, 200.0)]
    records = [learned(record, *curve) for record, curve in zip(made, curves, strict=True)]
    axes, _ = drawn(learning.curves, handmade.evidence(suite, records))
    first = round(100 * ((0.9 * 0.8) ** 0.5 - 1), 3)
    assert lines(axes) == {"softmax": [(1, 0), (2, 0)], "MoS 2": [(1, first), (2, -20)], "MoS 5": [(1, 0)]}
    band = {(x, round(float(y), 3)) for x, y in axes.collections[0].get_paths()[0].vertices}
    assert {(1, -10), (1, -20), (2, -20)} == band
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
    assert {line.get_label() for line in stars} == {"the code of its authors, 2021"}
    assert axes.get_ylabel().startswith("validation perplexity\nmean")
    low, high = axes.get_ylim()
    assert low < 40 < 900 < high


def test_curves_of_variants_of_a_backbone_are_in_one_plot_with_the_printed_end(suite_of, record_of, kinds):
    kinds("learning_curves_by_backbone")
    suite = suite_of(handmade.changed(("d_model: 8,", "d_model: [8, 16],")))
    made = []
    for trial in suite.trials:
        d = float(trial.backbone.params["d_model"])
        made.append(learned(record_of(trial, valid_ppl=d, test_ppl=d), d + 1, d + 2))
    cell = handmade.printed_cell(metric="valid_ppl", weights="", value="7.5", source="paper/1")
    evidence = handmade.evidence(suite, made, PrintedNumbers((cell,), ("paper/1: the paper, 2021",)))
    rows = [row for row in evidence.rows if row.head == "softmax"]
    axes, _ = drawn(partial(learning.curves, of_backbones=True), evidence, rows)
    assert lines(axes) == {
        "lstm, d_model 8": [(1, 9), (2, 10)],
        "the paper, 2021": [(2, 7.5)],
        "lstm, d_model 16": [(1, 17), (2, 18)],
    }
    names = [plot.name for plot in plots.draw(find(evidence), "suite")]
    assert names == [f"learning_curves_by_backbone.{head}" for head in ("softmax", "MoS_2")]


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
        assert f"Shown: {most} of 22 rows, the baseline, the best of each head and those with the lowest" in caption


# the forest plot


def test_an_interval_over_blocks_of_text_is_dotted(suite, made, monkeypatch):
    nll = np.repeat(np.float32([1.0, 2.0]), 10_000)
    kept = TokenScores(nll=nll, count=np.ones(20_000, np.int32), offset=np.ones(20_000, np.int32))
    monkeypatch.setattr(Evidence, "token_scores", lambda *of: kept)
    evidence = handmade.evidence(suite, made[::2])
    with settings():
        on, caption = forest.draw(find(evidence), evidence.rows, evidence)
    (line,) = [line for line in on.lines if list(line.get_ydata()) == [1, 1]]
    assert (line.get_linestyle(), list(line.get_xdata())) == (":", [0, 0])
    assert "dotted: an interval over blocks of text" in caption


def test_a_figure_for_a_paper_is_a_pdf_of_the_width_without_title_and_with_its_fonts(suite, made, tmp_path):
    found = Study(evidence=handmade.evidence(suite, made), results=tmp_path)
    (place,) = found.write_figure("forest", width=3.3)
    content = place.read_bytes()
    assert place.relative_to(tmp_path).parts[-2:] == ("paper", "forest.3.3in.pdf")
    assert f"/MediaBox [ 0 0 {72 * 3.3:g}".encode() in content
    assert b"/FontFile2" in content  # embedded TrueType
    assert b"/Type3" not in content
    (part,) = found.write_figure("forest", ["head=mos,num_mixtures=2"], width=3.3)
    assert part.parent != place.parent
    with pytest.raises(RecordError, match="no plot 'bush'; it has: forest, "):
        found.write_figure("bush", width=3.3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("huge", [False, True])
@pytest.mark.parametrize("width", [forest.PHONE, 3.3])
def test_long_names_and_huge_numbers_leave_room_for_the_axes_and_no_band_crosses_a_text(width, huge, suite, made):
    if huge:
        grown = {"test_ppl": 1e300, "train_ms_per_batch": 1e5}
        made = [*made[:2], *(each.model_copy(update={"metrics": each.metrics | grown}) for each in made[2:])]
    evidence = handmade.evidence(suite, made)
    for row in evidence.rows if huge else ():
        object.__setattr__(row, "head", f"a_long_name_of_a_head({', '.join(f'parameter_{n}=None' for n in range(9))})")
    with settings():
        on, _ = forest.draw(find(evidence), evidence.rows, evidence, Frame(width=width))
        on.figure.draw_without_rendering()
    assert on.get_position().width > 0.05
    bands = [each.get_window_extent() for each in on.collections[::2]] if width < forest.NARROW and not huge else []
    for text in on.texts if bands else ():
        box = text.get_window_extent()
        assert not any(band.overlaps(box) for band in bands)
        assert box.x1 <= on.figure.bbox.x1


# files


def test_what_a_label_says_is_text_and_a_plot_for_a_paper_has_no_title(suite, made, kinds):
    kinds("perplexity_by_mixtures")
    hostile, found = '</text><script>alert(1)</script> $\\frac{1}$ "\x1b[31m', find(handmade.evidence(suite, made))
    (plot,), (plain,) = plots.draw(found, hostile), plots.draw(found, hostile, titled=False)
    one, other = (ElementTree.fromstring(each.svg) for each in (plot, plain))
    assert not [element for element in one.iter() if element.tag.endswith("script")]
    told, plain_told = ([each.text for each in tree.iter() if each.tag.endswith("}text")] for tree in (one, other))
    title = {KINDS["perplexity_by_mixtures"], '</text><script>alert(1)</script> $\\frac{1}$ "\\x1b[31m'}
    assert title <= {*told}
    assert {*plain_told} == {*told} - title
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
        assert (png[:4], pdf[:4]) == (b"\x89PNG", b"%PDF")
        assert not any(word in pdf for word in (b"CreationDate", b"/Type3"))
        assert not any(word in plot.svg for word in ("<dc:date>", "Matplotlib v"))


def test_writing_changes_only_what_changed_and_removes_what_is_no_longer_drawn(tmp_path):
    def write(*made) -> dict[str, int]:
        files, gone = plots.files_of(made, tmp_path)
        outputs.write(files, gone=gone)
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}

    one, two = (
        Plot(name=name, title="", caption="", svg=f"<svg>{name}</svg>", png=lambda: b"png", pdf=lambda: b"pdf")
        for name in ("one", "two")
    )
    before = write(one, two)
    assert sorted(before) == ["one.pdf", "one.png", "one.svg", "two.pdf", "two.png", "two.svg"]
    kept = {name: time for name, time in before.items() if name.startswith("one")}
    assert write(one, LeftOut(title="two", reason="nothing")) == kept
