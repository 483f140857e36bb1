"""What a plot is to a page, a notebook and a folder of files. matplotlib is not needed for it."""

from collections.abc import Callable
from dataclasses import dataclass

LADDER, FOREST = "ladder", "forest"
FIRST = (LADDER, FOREST)  # the kinds of plots that are a page's first


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot.

    Args:
        svg: a whole document, white behind.
        png, pdf: draw the same, when they are called.
        narrow: SVG for a narrow screen; '' if that of `svg` is readable there.
        boxes: the letters that no font of this machine has: png and pdf show boxes in their place.
    """

    name: str
    title: str
    caption: str
    svg: str
    png: Callable[[], bytes]
    pdf: Callable[[], bytes]
    narrow: str = ""
    boxes: str = ""

    def __repr__(self) -> str:
        """'<Plot forest: Change against the baseline>'."""
        return f"<Plot {self.name}: {self.title}>"

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A plot that would show nothing, and the reason."""

    title: str
    reason: str
