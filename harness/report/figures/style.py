"""The style of plots, and how they are written: readable without colours, and the same bytes for the same data.

The global state of pyplot is not used.
"""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, StrMethodFormatter

from harness.printable import printable

WIDTH, HEIGHT, LEGEND_LINE = 4.2, 2.9, 0.17  # inches
DPI = 200
INK, FAINT, PAPER = "#1c1e21", "#8b9097", "#ffffff"
# The colours of Okabe and Ito (jfly.uni-koeln.de/color), for colour-blind readers, without black and yellow.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
# 6 colours, 7 markers and 5 lines: neighbouring series differ in all three.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)))
LOOKS = len(MARKERS) * len(LINES)  # styles that differ without colour
MAX_LABEL = 60
SETTINGS = {
    "axes.axisbelow": True,
    "axes.edgecolor": FAINT,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # part of matplotlib: the same bytes on every machine
    "font.size": 8.5,
    "grid.alpha": 0.3,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3 fonts
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "svg.fonttype": "none",  # text stays text: small, searchable, and in the page in the font of the browser
    "svg.hashsalt": "harness",  # the same ids each time
    "text.color": INK,
    # guard: plot-no-formula "text.parse_math": False -> "text.parse_math": True
    "text.parse_math": False,  # $ in a label is no formula
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True, slots=True)
class Style:
    """The style of a series in a plot."""

    colour: str
    marker: str
    line: str | tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot.

    Args:
        name: of its files.
        title, caption: what it shows; plain text.
        svg: a whole document, white behind.
        png, pdf: the same.
        narrow: SVG for a narrow screen; '' if that of `svg` is readable there.
    """

    name: str
    title: str
    caption: str
    svg: str
    png: bytes
    pdf: bytes
    narrow: str = ""

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return self.svg


def style(index: int) -> Style:
    """The style of the index-th series of a plot."""
    return Style(COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)], LINES[index % len(LINES)])


@contextmanager
def settings() -> Iterator[None]:
    """A context in which figures have our style, independent of a user's matplotlibrc."""
    with matplotlib.rc_context(matplotlib.rcParamsDefault | SETTINGS), warnings.catch_warnings():
        # Letters that the font does not have are right in the SVG and boxes in the PNG: no warning is needed.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def axes(x: str, y: str) -> Axes:
    """Axes of a new figure."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    FigureCanvasAgg(figure)
    made = figure.add_subplot()
    made.set_xlabel(x)
    made.set_ylabel(y)
    return made


def legend(on: Axes, entries: Sequence[tuple[Artist, str]]) -> None:
    """Draw the legend below the axes; the figure grows with it."""
    labels = [shown(label) for _, label in entries]
    columns = 2 if max(map(len, labels)) <= 21 else 1
    on.figure.set_figheight(HEIGHT + LEGEND_LINE * -(-len(labels) // columns))
    on.figure.legend([artist for artist, _ in entries], labels, loc="outside lower left", ncols=columns)


def shown(label: str, most: int = MAX_LABEL) -> str:
    """A label for a plot: one line, not too long, and not beginning with '_', which legends leave out."""
    line = printable(label)
    line = f"{line[: most - 3]}..." if len(line) > most else line
    return f" {line}" if line.startswith("_") else line


def set_titles(on: Axes, title: str, below: str) -> None:
    """Draw a title above the axes, and a smaller line below it."""
    on.set_title(shown(title, 48), loc="left", pad=17, fontsize=9.5, fontweight="bold")
    on.annotate(shown(below, 80), (0, 1), (0, 6), "axes fraction", "offset points", fontsize=7, color=FAINT)


def logarithmic(axis, low: float, high: float) -> None:
    """A log scale with plain numbers, if the values span more than a factor of 3."""
    if 0 < 3 * low < high:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        subs = (1, 1.5, 2, 3, 5, 7) if high < 10 * low else (1, 2, 5) if high < 100 * low else (1,)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())


def finished(on: Axes, *, name: str, title: str, caption: str, of: str) -> Plot:
    """The plot of finished axes.

    Args:
        of: the trials that it is made of, '32 ok of 32': the description in its files.
    """
    svg = svg_of(on.figure, of)
    on.figure.set_layout_engine("none")  # keep the layout of the SVG
    return Plot(name=name, title=title, caption=caption, svg=svg, png=_png(on.figure, of), pdf=_pdf(on.figure, of))


def svg_of(figure: Figure, of: str) -> str:
    """A figure as SVG that says of which trials it is made."""
    content = io.StringIO()
    about = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # no date and no version
    about["Description"] = of  # guard: plot-size -> about["Description"] = None
    figure.savefig(content, format="svg", metadata=about, facecolor=PAPER)
    return re.sub(r"[ \t]+$", "", content.getvalue(), flags=re.MULTILINE)


def _png(figure: Figure, of: str) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=DPI, metadata={"Software": None, "Description": of}, facecolor=PAPER)
    return content.getvalue()


def _pdf(figure: Figure, of: str) -> bytes:
    content = io.BytesIO()
    about = dict.fromkeys(("Creator", "Producer", "CreationDate"))  # no date and no version
    figure.savefig(content, format="pdf", metadata={**about, "Subject": of}, facecolor=PAPER)
    return content.getvalue()
