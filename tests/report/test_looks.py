"""Colours and shapes: by family, the same in all plots, seen on light and dark pages and by colour-blind readers."""

from itertools import combinations, pairwise, product

import handmade
import numpy as np
import pytest

from harness.plan.names import family
from harness.registry import HEADS
from harness.report.figures import looks
from harness.report.figures.looks import CARD, DARK, FAINT, INK, MIXED, OTHERS, PAPER, PLAIN, VERDICTS

# To linear RGB as a dichromat sees it, from linear RGB: Machado, Oliveira and Fernandes (2009), A physiologically-based
# model for simulation of color vision deficiency, IEEE TVCG 15(6), table of severity 1.0.
PROTANOPIA = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
DEUTERANOPIA = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
EYES = {"all cones": np.eye(3), "no red cones": np.array(PROTANOPIA), "no green cones": np.array(DEUTERANOPIA)}
# From linear sRGB to XYZ with white point D65: IEC 61966-2-1.
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
HEADS_OF = """
  - softmax: {projection: true, d_embed: [null, 4]}
  - mos: {num_mixtures: [10, 2]}
  - moc: {num_mixtures: 5}
  - sigsoftmax
  - mixtape"""
SUITE = handmade.changed(("  - mos: {num_mixtures: 2}", HEADS_OF.strip("\n")))


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(values: np.ndarray) -> np.ndarray:
    """CIELAB (CIE 15:2004, equations 8.3 to 8.5) of linear RGB."""
    shares = XYZ @ np.clip(values, 0, 1) / XYZ.sum(axis=1)
    x, y, z = np.where(shares > (6 / 29) ** 3, np.cbrt(shares), shares / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one: str, other: str, eyes: str) -> float:
    return float(np.linalg.norm(lab(EYES[eyes] @ linear(one)) - lab(EYES[eyes] @ linear(other))))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2."""
    low, high = sorted(float(XYZ[1] @ linear(each)) for each in (one, other))
    return (high + 0.05) / (low + 0.05)


def on_pages(colours) -> list[list[str]]:
    """The colours of a light page and those of a dark one."""
    return [list(colours), [DARK[each] for each in colours]]


def test_the_measures_are_those_of_their_sources():
    assert contrast("#000000", "#ffffff") == pytest.approx(21, abs=0.01)
    assert lab(linear("#ff0000")) == pytest.approx([53.2, 80.1, 67.2], abs=0.3)  # of sRGB red, usual tables
    # red and green of equal lightness are near for eyes without green cones, and far for others
    assert distance("#c03030", "#6a7a10", "no green cones") < 25 < 75 < distance("#c03030", "#6a7a10", "all cones")


@pytest.mark.parametrize("light", DARK)
def test_every_colour_is_seen_on_a_light_and_on_a_dark_page(light):
    needed = 4.5 if light in VERDICTS else 3.0  # WCAG 2.2, 1.4.3 for text and 1.4.11 for graphics
    assert contrast(light, PAPER) >= needed
    assert contrast(DARK[light], CARD) >= needed


def test_what_is_written_is_read_on_paper():
    assert min(contrast(INK, PAPER), contrast(FAINT, PAPER)) >= 4.5


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("page", [0, 1])
def test_families_and_other_heads_are_told_apart_by_colour_blind_readers(eyes, page):
    plain, mixed, others = (on_pages(each)[page] for each in (PLAIN, MIXED, OTHERS))
    pairs = [*product(plain, mixed), *product(plain + mixed, others), *combinations(others, 2)]
    assert min(distance(*pair, eyes) for pair in pairs) >= 12  # 2.3 is a just noticeable difference
    verdicts = combinations(on_pages(VERDICTS)[page], 2)
    assert min(distance(*pair, eyes) for pair in verdicts) >= 12


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("ramp", [PLAIN, MIXED])
def test_each_step_of_a_ramp_is_noticed_and_in_order(ramp, eyes):
    for page in on_pages(ramp):
        levels = [lab(EYES[eyes] @ linear(each))[0] for each in page]
        assert levels in (sorted(levels), sorted(levels, reverse=True))
        assert min(abs(a - b) for a, b in pairwise(levels)) >= 2.3


@pytest.fixture
def found(suite_of):
    """The looks of a suite by head, and its evidence."""
    evidence = handmade.evidence(suite_of(SUITE), [])
    return {row.head: look for row, look in looks.looks_of(evidence).items()}, evidence


def test_softmax_and_its_forms_are_grey_mixtures_darker_with_k_and_others_have_their_own(found):
    by_head, _ = found
    assert [by_head[head].colour in PLAIN for head in ("softmax", "affine softmax", "affine softmax, rank 4")] == [
        True
    ] * 3
    ramp = list(MIXED)
    assert [ramp.index(by_head[head].colour) for head in ("MoS 2", "MoC 5", "MoS 10")] == [0, 6, 11]
    assert [by_head[head].colour for head in ("sigsoftmax", "Mixtape")] == list(OTHERS)[:2]
    assert len({look.colour for look in by_head.values()}) == len(by_head)


def test_a_head_without_a_declaration_and_without_mixtures_is_in_no_family():
    declared = {name: family(HEADS.get(name)) for name in HEADS.names()}
    assert set(declared.values()) == {"", "plain"}


def test_a_row_has_its_number_in_the_suite_by_which_a_page_finds_it(found):
    by_head, evidence = found
    assert {by_head[row.head].row: row.head for row in evidence.rows} == dict(
        enumerate(row.head for row in evidence.rows)
    )


def test_thirty_five_rows_are_told_apart_without_colour(suite_of):
    heads = "  - mos: {num_mixtures: [" + ", ".join(map(str, range(2, 36))) + "]}"
    suite = suite_of(handmade.changed(("  - mos: {num_mixtures: 2}", heads)))
    found = looks.looks_of(handmade.evidence(suite, [])).values()
    assert len({(look.marker, look.line) for look in found}) == len(found) == 35


def test_a_head_looks_the_same_with_every_backbone(suite_of):
    suite = suite_of(handmade.changed(("d_model: 8,", "d_model: [8, 16],")))
    found = looks.looks_of(handmade.evidence(suite, []))
    by_head = {}
    for row, look in found.items():
        by_head.setdefault(row.head, set()).add((look.colour, look.marker, look.line))
    assert {head: len(each) for head, each in by_head.items()} == {"softmax": 1, "MoS 2": 1}
    assert len({look.row for look in found.values()}) == 4
