"""The style of plots, and how they are written: readable without colours, and the same bytes for the same data.

The global state of pyplot is not used.
"""

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullLocator

from harness.printable import printable
from harness.report.figures import fonts
from harness.report.figures.drawn import Plot
from harness.report.figures.looks import FAINT, INK, PAPER

WIDTH, HEIGHT = 4.4, 2.9  # inches, as all below
LEGEND_LINE, LEGEND_LETTER, LEGEND_MARK = 0.17, 0.058, 0.6  # of a legend: a line, a letter, a mark with its room
DPI = 200
MAX_LABEL = 60
SETTINGS = {
    "axes.axisbelow": True,
    "axes.edgecolor": FAINT,
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "sans-serif",
    "font.sans-serif": [fonts.PLAIN],
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
    "text.parse_math": False,  # $ in a label is no formula
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What a plot is drawn in: its width in inches, a title and a smaller line below it, both '' for a paper."""

    width: float | None = None
    title: str = ""
    below: str = ""


@contextmanager
def settings() -> Iterator[None]:
    """A context in which figures have our style, independent of a user's matplotlibrc."""
    with matplotlib.rc_context(matplotlib.rcParamsDefault | SETTINGS), warnings.catch_warnings():
        # Letters that no font has are right in the SVG and boxes in PNG and PDF: a plot names them, all at once.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def axes(x: str, y: str, frame: Frame | None = None, size: tuple[float, float] = (WIDTH, HEIGHT)) -> Axes:
    """Axes of a new figure.

    Args:
        size: of the figure in inches, where the frame has no width.
    """
    frame = frame or Frame()
    figure = Figure(figsize=(frame.width or size[0], size[1]), layout="constrained", facecolor=PAPER)
    FigureCanvasAgg(figure)
    made = figure.add_subplot()
    made.locator_params(axis="x", nbins=6)
    made.set_xlabel(x)
    made.set_ylabel(y)
    if frame.title:
        made.set_title(shown(frame.title, 48), loc="left", pad=17, fontsize=9.5, fontweight="bold")
        below = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 7, "color": FAINT}
        made.annotate(shown(frame.below, 80), (0, 1), (0, 6), **below)
    return made


def belongs(row: int | None, artists: Iterable[Artist]) -> None:
    """Name artists after the row of the suite that they show, by which a page finds them: 'row-3-0'."""
    if row is not None:
        for number, artist in enumerate(artists):
            artist.set_gid(f"row-{row}-{number}")


def shown(label: str, most: int = MAX_LABEL) -> str:
    """A label for a plot: one line, not too long, and not beginning with '_', which legends leave out."""
    line = printable(label)
    line = f"{line[: most - 3]}..." if len(line) > most else line
    return f" {line}" if line.startswith("_") else line


def logarithmic(axis: Axis, values: Sequence[float]) -> None:
    """A log scale with plain numbers, if the values span more than a factor of 3."""
    low, high = min(values), max(values)
    if 0 < 3 * low < high:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())


def finished(on: Axes, *, name: str, title: str, caption: str, of: str) -> Plot:
    """The plot of axes, with a legend below them of all that has a label.

    Args:
        of: the trials that it is made of, '32 ok of 32': the description in its files.
    """
    figure = on.figure
    named = {}
    for handle, label in zip(*on.get_legend_handles_labels(), strict=True):
        named.setdefault(label, handle)
    if named:
        columns = max(1, int(figure.get_figwidth() / (LEGEND_LETTER * max(map(len, named)) + LEGEND_MARK)))
        figure.set_figheight(figure.get_figheight() + LEGEND_LINE * -(-len(named) // columns))
        figure.legend(named.values(), named, loc="outside lower left", ncols=columns)
    svg = svg_of(figure, of)
    figure.set_layout_engine(None)  # keep the layout of the SVG
    png = partial(_saved, figure, "png", {"Software": None, "Description": of})
    pdf = partial(_saved, figure, "pdf", {"Creator": None, "Producer": None, "CreationDate": None, "Subject": of})
    return Plot(name=name, title=title, caption=caption, svg=svg, png=png, pdf=pdf, boxes=fonts.without(_text(figure)))


def svg_of(figure: Figure, of: str) -> str:
    """A figure as SVG that says of which trials it is made."""
    if more := fonts.families(_text(figure)):
        for text in figure.findobj(Text):
            text.set_fontfamily(["sans-serif", *more])
    about = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # no date and no version
    about["Description"] = of
    content = io.StringIO()
    FigureCanvasSVG(figure).print_svg(content, metadata=about)  # `savefig` would draw it twice
    return re.sub(r"[ \t]+$", "", content.getvalue(), flags=re.MULTILINE)


def _text(figure: Figure) -> str:
    return "".join(text.get_text() for text in figure.findobj(Text))


def _saved(figure: Figure, form: str, about: dict[str, str | None]) -> bytes:
    content = io.BytesIO()
    with settings():
        figure.savefig(content, format=form, dpi=DPI, metadata=about)
    return content.getvalue()
