"""The forest plot: positions by hand, what is far off at the edge, and what stands beside the rows."""

import math
from dataclasses import replace
from types import SimpleNamespace

import handmade
import pytest

from harness.errors import RecordError
from harness.report.figures import forest
from harness.report.figures.looks import INK, VERDICTS
from harness.report.figures.style import Frame, settings
from harness.report.findings import find
from harness.report.statistics import MeanDifference
from harness.report.study import Study
from harness.report.verdicts import Verdict

COLOURS = tuple(VERDICTS)
SUITE = handmade.changed(("  - mos: {num_mixtures: 2}", "  - mos: {num_mixtures: [2, 5]}"))
PPL = {"softmax": (100.0, 104.0), "MoS 2": (80.0, 84.0), "MoS 5": (90.0, 94.0)}


@pytest.fixture
def evidence(suite_of, record_of):
    """softmax, which is the baseline, and two mixtures, with two seeds each."""
    suite = suite_of(SUITE)
    values = [value for pair in PPL.values() for value in pair]
    made = [
        record_of(trial, test_ppl=ppl, valid_ppl=ppl, train_ms_per_batch=10.0 + index // 2)
        for index, (trial, ppl) in enumerate(zip(suite.trials, values, strict=True))
    ]
    return handmade.evidence(suite, made)


def drawn(evidence, compared=None, width=forest.WIDE):
    rows = evidence.rows
    given = {rows[place]: each for place, each in (compared or {}).items()}
    found = find(evidence)
    found = replace(found, compared=given) if given else found
    with settings():
        return forest.draw(found, rows, evidence, Frame(width=width))


def compared(baseline, mean, verdict, width=0.01):
    """A comparison of this outcome, in nats."""
    found = MeanDifference(n=6, mean=mean, sd=0.01, df=5, low=mean - width, high=mean + width, p_t=0.5)
    word, *limits = verdict.split(", ")
    judged = Verdict(word, limits=tuple(limits))
    return SimpleNamespace(
        difference=found, interval=None, test="welch", seeds=(), judged=judged, row=baseline, control=baseline
    )


def texts(on):
    """The texts beside the rows, line by line."""
    lines = {}
    for text in on.texts:
        place = -1 if text.xycoords == "axes fraction" else text.xy[1]
        lines.setdefault(place, []).append(text.get_text())
    return lines


def above(on):
    """The texts above the rows of a narrow plot."""
    return [text.get_text() for text in on.texts]


def marks(on):
    """Marker, colour and position of what stands for the means."""
    return [
        (line.get_marker(), line.get_color(), line.get_xdata()[0], line.get_ydata()[0])
        for line in on.lines
        if line.get_marker() in ("o", "s", "D", "<", ">")
    ]


def test_means_seeds_and_texts_are_those_of_the_records(evidence):
    on, caption = drawn(evidence)
    two, five = (math.sqrt(a / 100 * b / 104) - 1 for a, b in ((80, 84), (90, 94)))  # geometric means of the ratios
    assert [mark[2:] for mark in marks(on)] == [(pytest.approx(100 * two), 1), (pytest.approx(100 * five), 2)]
    dots = [line.get_xdata() for line in on.lines if line.get_marker() == "."]
    assert dots == [pytest.approx([-20, 100 * (84 / 104 - 1)]), pytest.approx([-10, 100 * (94 / 104 - 1)])]
    assert [label.get_text() for label in on.get_yticklabels()] == list(PPL)
    assert texts(on) == {
        -1: ["", "test ppl", "ms/batch"],
        0: ["baseline", "102.00", "10.0"],
        1: ["too few seeds", "82.00", "11.0 (1.1x)"],
        2: ["too few seeds", "92.00", "12.0 (1.2x)"],
    }
    assert "95 % interval; dots: seeds" in caption


@pytest.mark.parametrize(
    ("verdict", "look", "short"),
    [
        ("better", ("o", COLOURS[0]), "better"),
        ("worse", ("s", COLOURS[1]), "worse"),
        ("equivalent", ("D", COLOURS[2]), "equivalent"),
        ("worse, both collapsed", ("s", COLOURS[1]), "worse ↓"),
        ("undecided, control collapsed", ("o", INK), "undecided ↓"),
        ("worse, coarse tuning", ("s", COLOURS[1]), "worse"),
        ("better, coarse tuning, neither converged", ("o", COLOURS[0]), "better ↓"),
    ],
)
def test_a_verdict_has_a_colour_and_a_marker_and_its_whole_word_where_there_is_room(verdict, look, short, evidence):
    found = {1: compared(evidence.rows[0], -0.02, verdict)}
    on, _ = drawn(evidence, found)
    assert marks(on)[0][:2] == look
    assert texts(on)[1][0] == (verdict if len(verdict) <= 30 else short)
    on, caption = drawn(evidence, found, width=3.3)
    assert above(on)[1] == f"MoS 2: {short}; ppl 82.00; 11.0 (1.1x) ms/batch"
    assert ("↓" in caption) == ("↓" in short)


def test_the_interval_the_line_of_the_control_and_the_band_of_the_margin_are_drawn_in_percent(evidence):
    on, _ = drawn(evidence, {1: compared(evidence.rows[0], math.log(1.05), "worse", width=math.log(1.02))})
    (interval,) = [line.get_xdata() for line in on.lines if len(line.get_xdata()) == 2 and line.get_ydata()[0] == 1]
    assert interval == pytest.approx([100 * (1.05 / 1.02 - 1), 100 * (1.05 * 1.02 - 1)])
    band, zero = (each.get_paths()[0].get_extents() for each in on.collections)
    assert (band.x0, band.x1) == pytest.approx((100 * (1 / 1.01 - 1), 1))
    assert (zero.x0, zero.x1, zero.y0, zero.y1) == (0, 0, band.y0, band.y1)


def test_a_row_that_is_far_off_is_an_arrow_with_its_number_and_leaves_room_for_the_others(evidence):
    baseline = evidence.rows[0]
    far = compared(baseline, math.log(1.84), "worse", width=math.log(1.1))
    on, _ = drawn(evidence, {0: compared(baseline, 0.01, "better"), 1: compared(baseline, 0.02, "better"), 2: far})
    high = on.get_xlim()[1]
    assert high < 20
    assert marks(on)[2] == (">", COLOURS[1], high, 2)
    assert "+84 % [67, 102]" in texts(on)[2]  # 1.84 / 1.1 and 1.84 * 1.1


def test_an_interval_over_blocks_of_text_and_a_disturbed_time_are_marked(evidence):
    found = compared(evidence.rows[0], 0.01, "too few seeds")
    found.interval = SimpleNamespace(low=0.0, high=0.02)
    on, caption = drawn(evidence, {1: found})
    (line,) = [line for line in on.lines if list(line.get_ydata()) == [1, 1]]
    assert line.get_linestyle() == ":"
    assert line.get_xdata() == pytest.approx([0, 100 * math.expm1(0.02)])
    assert "dotted: an interval over blocks of text" in caption
    assert "‡" not in caption
    for record in evidence.rows[1].records.values():
        record.environment.__dict__["shared"] = True
    on, caption = drawn(evidence, {1: found})
    assert texts(on)[1][2] == "11.0 ‡"
    assert "‡ timed while other work ran" in caption
    for record in evidence.rows[1].records.values():
        record.environment.__dict__["device"] = "a GPU"
    on, caption = drawn(evidence, {1: found})
    assert texts(on)[1][2] == "11.0 ‡"
    assert "or on another device" in caption


def test_a_row_without_a_trial_says_so_and_without_comparisons_there_is_no_plot(suite_of, record_of):
    suite = suite_of(SUITE)
    made = [record_of(trial, test_ppl=50.0) for trial in suite.trials[:4]]
    on, _ = drawn(handmade.evidence(suite, made))
    assert texts(on)[2] == ["2 not run", "-", "-"]
    assert drawn(handmade.evidence(suite, made[:2])) == "no row is compared with a control"


def test_a_figure_for_a_paper_is_a_pdf_of_the_width_without_title_and_with_its_fonts(evidence, tmp_path):
    found = Study(evidence=evidence, results=tmp_path)
    (place,) = found.write_figure("forest", width=3.3)
    content = place.read_bytes()
    assert place.relative_to(tmp_path).parts[-2:] == ("paper", "forest.3.3in.pdf")
    assert f"/MediaBox [ 0 0 {72 * 3.3:g}".encode() in content
    assert b"/FontFile2" in content  # embedded TrueType
    assert b"/Type3" not in content
    (part,) = found.write_figure("forest", ["head=mos,num_mixtures=2"], width=3.3)
    assert part.parent != place.parent
    assert place.read_bytes() == content
    with pytest.raises(RecordError, match="no plot 'bush'; it has: forest, "):
        found.write_figure("bush", width=3.3)


@pytest.mark.parametrize(
    ("width", "ppl"), [(forest.PHONE, ["", "", ""]), (3.3, ["; ppl 102.00", "; ppl 82.00", "; ppl 92.00"])]
)
def test_on_a_phone_and_in_a_column_a_text_stands_above_the_interval_and_no_band_crosses_it(evidence, width, ppl):
    on, _ = drawn(evidence, width=width)
    assert not on.get_yticklabels()
    assert above(on) == [
        f"softmax: baseline{ppl[0]}; 10.0 ms/batch",
        f"MoS 2: too few seeds{ppl[1]}; 11.0 (1.1x) ms/batch",
        f"MoS 5: too few seeds{ppl[2]}; 12.0 (1.2x) ms/batch",
    ]
    with settings():
        on.figure.draw_without_rendering()
    bands = [each.get_window_extent() for each in on.collections[::2]]  # after each its part of the line at 0
    assert len(bands) == 3
    for text in on.texts:
        box = text.get_window_extent()
        assert not any(band.overlaps(box) for band in bands)
        assert box.x1 <= on.figure.bbox.x1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("width", [2.5, 3.3, forest.WIDE])
def test_long_names_and_huge_numbers_leave_room_for_the_axes(width, suite_of, record_of, monkeypatch):
    suite = suite_of(SUITE)
    made = [record_of(trial, test_ppl=1e300, train_ms_per_batch=1e5) for trial in suite.trials[2:]]
    made += [record_of(trial, test_ppl=2.0) for trial in suite.trials[:2]]
    evidence = handmade.evidence(suite, made)
    for row in evidence.rows:
        object.__setattr__(row, "head", f"a_long_name_of_a_head({', '.join(f'parameter_{n}=None' for n in range(9))})")
    on, _ = drawn(evidence, width=width)
    with settings():
        on.figure.draw_without_rendering()
    assert on.get_position().width > 0.05
