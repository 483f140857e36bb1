"""Colours and shapes: by family, the same in all plots, seen on light and dark pages and without colour."""

import handmade
import pytest

from harness.report.figures import looks
from harness.report.figures.looks import CARD, DARK, FAINT, INK, MIXED, OTHERS, PAPER, PLAIN, VERDICTS

HEADS_OF = """
  - softmax: {projection: true, d_embed: [null, 4]}
  - mos: {num_mixtures: [10, 2]}
  - moc: {num_mixtures: 5}
  - sigsoftmax
  - mixtape"""
SUITE = handmade.changed(("  - mos: {num_mixtures: 2}", HEADS_OF.strip("\n")))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2, of relative luminances."""

    def luminance(colour: str) -> float:
        values = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_colour_is_seen_on_a_light_and_on_a_dark_page():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for light, dark in DARK.items():
        needed = 4.5 if light in VERDICTS else 3.0  # WCAG 2.2, 1.4.3 for text and 1.4.11 for graphics
        assert contrast(light, PAPER) >= needed, light
        assert contrast(dark, CARD) >= needed, dark
    assert min(contrast(INK, PAPER), contrast(FAINT, PAPER)) >= 4.5


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
