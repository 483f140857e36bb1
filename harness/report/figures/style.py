"""The style of plots, and how they are written: readable without colours, and the same bytes for the same data.

The global state of pyplot is not used.
"""

import io
import re
import statistics
import warnings
from collections.abc import Iterator, Sequence
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
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, StrMethodFormatter

from harness.printable import printable
from harness.report.figures import fonts
from harness.report.figures.drawn import Plot
from harness.report.figures.looks import FAINT, INK, PAPER, Look

WIDTH, HEIGHT, LEGEND_LINE = 4.4, 2.9, 0.17  # inches
DPI = 200
MAX_LABEL = 60
NOISE_TIMES, NOISE_SHARE = 4, 0.01  # an axis spans so many times the noise, which is at least this share of its values
SETTINGS = {
    "axes.axisbelow": True,
    "axes.edgecolor": FAINT,
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
    # guard: plot-no-formula "text.parse_math": False -> "text.parse_math": True
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
    made.set_xlabel(x)
    made.set_ylabel(y)
    if frame.title:
        made.set_title(shown(frame.title, 48), loc="left", pad=17, fontsize=9.5, fontweight="bold")
        below = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 7, "color": FAINT}
        made.annotate(shown(frame.below, 80), (0, 1), (0, 6), **below)
    return made


def legend(on: Axes, entries: Sequence[tuple[Artist, str]]) -> Legend | None:
    """Draw a legend below the axes; the figure grows with it."""
    if not entries:
        return None
    labels = [shown(label) for _, label in entries]
    columns = 2 if max(map(len, labels)) <= 26 else 1
    on.figure.set_figheight(on.figure.get_figheight() + LEGEND_LINE * -(-len(labels) // columns))
    return on.figure.legend([artist for artist, _ in entries], labels, loc="outside lower left", ncols=columns)


def belongs(look: Look, part: str, *artists: Artist) -> None:
    """Name artists after the row that they show, by which a page finds them: 'row-3-line'. A part is there once."""
    if look.row is not None:
        for number, artist in enumerate(artists):
            artist.set_gid(f"row-{look.row}-{part}{number or ''}")


def shown(label: str, most: int = MAX_LABEL) -> str:
    """A label for a plot: one line, not too long, and not beginning with '_', which legends leave out."""
    line = printable(label)
    fonts.use_for(line)
    line = f"{line[: most - 3]}..." if len(line) > most else line
    return f" {line}" if line.startswith("_") else line


def least_span(axis: Axis, noise: Sequence[float], low: float | None = None, high: float | None = None) -> None:
    """Widen an axis that is finer than the noise: it spans at least NOISE_TIMES the median noise of what it shows.

    Args:
        noise: of each value, such as its range over seeds. It counts as NOISE_SHARE of the values at least.
    """
    ends = axis.get_view_interval()
    low, high = (ends[0] if low is None else low), (ends[1] if high is None else high)
    middle = (low + high) / 2
    least = NOISE_TIMES * max(statistics.median(noise or [0.0]), NOISE_SHARE * abs(middle))
    if axis.get_scale() == "linear" and high - low < least:
        low, high = middle - least / 2, middle + least / 2
    axis.axes.set(**{f"{axis.axis_name}lim": (low, high)})


def logarithmic(axis: Axis, low: float, high: float) -> None:
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
    texts, families = on.figure.findobj(Text), matplotlib.rcParams["font.family"]
    if len(families) > 1:  # a label needs other fonts: they are for all texts, also those that were made before it
        for text in texts:
            text.set_fontfamily(families)
    svg = svg_of(on.figure, of)
    on.figure.set_layout_engine(None)  # keep the layout of the SVG
    png = partial(_saved, on.figure, "png", {"Software": None, "Description": of})
    pdf = partial(_saved, on.figure, "pdf", {"Creator": None, "Producer": None, "CreationDate": None, "Subject": of})
    boxes = fonts.without("".join(text.get_text() for text in texts))
    return Plot(name=name, title=title, caption=caption, svg=svg, png=png, pdf=pdf, boxes=boxes)


def svg_of(figure: Figure, of: str) -> str:
    """A figure as SVG that says of which trials it is made."""
    about = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # no date and no version
    about["Description"] = of  # guard: plot-size -> about["Description"] = None
    content = io.StringIO()
    FigureCanvasSVG(figure).print_svg(content, metadata=about)  # `savefig` would draw it twice
    return re.sub(r"[ \t]+$", "", content.getvalue(), flags=re.MULTILINE)


def _saved(figure: Figure, form: str, about: dict[str, str | None]) -> bytes:
    content = io.BytesIO()
    with settings():
        figure.savefig(content, format=form, dpi=DPI, metadata=about)
    return content.getvalue()
