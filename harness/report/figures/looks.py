"""The home of colours: the look of each row, the same in all plots of a suite, by the family of its head.

A head whose docstring declares `Family: plain` is grey. Mixtures, the heads with a count of softmaxes, go from
light violet to dark blue with K. Every other head has a hue of its own. Markers and lines differ without colour, too.
"""

from dataclasses import dataclass
from itertools import cycle

from harness.plan.names import family
from harness.registry import HEADS
from harness.report.evidence import Evidence
from harness.report.row_facts import RowFacts, head_counts

INK, FAINT, PAPER = "#1c1e21", "#6f757c", "#ffffff"
CARD = "#1d2024"  # behind a plot of a dark page
# Each colour is a key, its value what a dark page shows for it: contrast to the background is 3 or more in both. They
# were found by a search for distance in CIELAB, as it is and as protanopes and deuteranopes see it.
PLAIN = {
    "#45474a": "#cacccf",
    "#535558": "#b9bbbe",
    "#616366": "#aaacaf",
    "#707275": "#999b9e",
    "#7f8184": "#8a8c8f",
    "#8e9194": "#7a7c7f",
}
MIXED = {  # from light violet to dark blue; on a dark page from blue to light violet
    "#947cf4": "#4171dc",
    "#8673e8": "#5a78df",
    "#7869db": "#6e80e3",
    "#6a60cf": "#7f87e6",
    "#5c57c3": "#8f8fe9",
    "#4d4fb7": "#9e97ec",
    "#3e46ab": "#ab9ff0",
    "#2e3e9f": "#b8a8f3",
    "#1b3694": "#c4b0f6",
    "#002e88": "#cfbafa",
    "#002772": "#dac3fe",
    "#001f5f": "#e4cdfe",
}
OTHERS = {
    "#039fb6": "#00889c",
    "#965a00": "#da9950",
    "#058343": "#53ad70",
    "#ed655f": "#cd5651",
    "#8a9920": "#758319",
    "#91200f": "#feb5a1",
}
VERDICTS = {"#0072b2": "#4aa8e0", "#b84c00": "#f28a3c", "#00805c": "#2cc79c"}  # also text: contrast 4.5 or more
DARK = PLAIN | MIXED | OTHERS | VERDICTS
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a row is drawn.

    Args:
        row: its number in the suite, by which a page finds what is drawn of it.
        colour: as on white paper; DARK has that of a dark page.
    """

    colour: str
    marker: str
    line: str | tuple
    row: int | None = None


def looks_of(evidence: Evidence) -> dict[RowFacts, Look]:
    """The look of each row, for all rows but n-grams. A head has one look on all corpora and backbones."""
    rows = [row for row in evidence.rows if not row.is_ngram]
    firsts: dict[str, RowFacts] = {}
    for row in rows:
        firsts.setdefault(row.head, row)
    counts = {name: head_counts(row)["#S"] for name, row in firsts.items()}
    plain = [name for name, row in firsts.items() if family(HEADS.get(row.spec.head.name)) == "plain"]
    mixed = sorted((name for name in firsts if counts[name] is not None and name not in plain), key=counts.__getitem__)
    others = [name for name in firsts if name not in plain and name not in mixed]
    colours = _spread(plain, list(PLAIN)) | _spread(mixed, list(MIXED)) | dict(zip(others, cycle(OTHERS), strict=False))
    places = {name: place for place, name in enumerate(firsts)}
    found = {}
    for number, row in enumerate(evidence.rows):
        if not row.is_ngram:
            found[row] = by_index(places[row.head], colours[row.head], number)
    return found


def by_index(index: int, colour: str = "", row: int | None = None) -> Look:
    """The index-th look: of 35, no two have the same marker and the same line.

    Args:
        colour: '' for one of OTHERS, in a plot whose lines are no heads.
    """
    return Look(
        colour=colour or list(OTHERS)[index % len(OTHERS)],
        marker=MARKERS[index % len(MARKERS)],
        line=LINES[index % len(LINES)],
        row=row,
    )


def _spread(names: list[str], ramp: list[str]) -> dict[str, str]:
    """Colours of a ramp, as far apart as its length allows, in order."""
    last = len(ramp) - 1
    if len(names) == 1:
        return {names[0]: ramp[last // 2]}
    return {name: ramp[round(place * last / (len(names) - 1))] for place, name in enumerate(names)}
