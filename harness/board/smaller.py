"""Makes the pages and plots of a site smaller: they show the same, and keep what other places refer to."""

import re

_SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
_FOR_PROGRAMS = re.compile(r' data-trial="[0-9a-f]{12}" data-(metric|timing)="\w+" data-value="[^"]*"')
FONT = "font-family: 'DejaVu Sans', sans-serif; "  # of each text of a plot
_ID = re.compile(r' id="([^"]*)"')


def smaller(name: str, content: bytes) -> bytes:
    """A file of a site without what nothing reads: long decimals and ids in plots, and in pages the unrounded values of
    single trials, which data/trials.csv has.
    """
    if name.endswith(".svg"):
        return _plot(content.decode()).encode()
    if name.endswith(".html"):
        page = _FOR_PROGRAMS.sub("", content.decode())
        return _SVG.sub(lambda found: _plot(found[0]), page).encode()
    return content


def _plot(svg: str) -> str:
    """A plot whose coordinates have two decimals, in points."""
    used = set(re.findall(r"#([^\")\s]+)", svg))
    if svg.count(FONT) > 1:
        svg = svg.replace(FONT, "").replace("<svg ", f'<svg style="{FONT.strip()}" ', 1)
    return re.sub(r"<[^>]*>\s*", lambda tag: _tag(tag[0], used), svg)


def _tag(tag: str, used: set[str]) -> str:
    """A tag of a plot with the white space behind it. The text between tags is not changed."""
    tag = re.sub(r"\n\s*", "\n", tag)
    tag = re.sub(r"(\d\.\d\d)\d+", r"\1", tag)
    tag = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", tag)
    tag = _ID.sub(lambda found: found[0] if found[1] in used else "", tag)
    return re.sub(r'style="[^"]*"', lambda found: found[0].replace(": ", ":").replace("; ", ";"), tag)
