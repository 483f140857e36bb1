"""Fonts for letters that the font of plots does not have: of those that this machine has."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

PLAIN = "DejaVu Sans"  # part of matplotlib: the same bytes on every machine
BOLD = 700
OTHER_STYLES = ("bold", "italic", "oblique", "light", "thin", "black", "serif", "mono")


def families(text: str) -> tuple[str, ...]:
    """The fonts of this machine from which matplotlib can take the letters that its own font lacks."""
    return _families(_lacking(text))


def without(text: str) -> str:
    """The letters of a text that no font of this machine has, each once."""
    letters = _lacking(text)
    return "".join(sorted(letters.difference(*(_letters(path) for path in _chosen(letters)))))


def _lacking(text: str) -> frozenset[str]:
    """The letters that the font of plots lacks."""
    if text.isascii():
        return frozenset()
    return frozenset(letter for letter in text if letter.isprintable()) - _letters(font_manager.findfont(PLAIN))


@lru_cache
def _chosen(letters: frozenset[str]) -> tuple[str, ...]:
    """The files of fonts that together have as many of these letters as can be had: the plainest first."""
    left, found = letters, []
    if left:
        for path in sorted(font_manager.findSystemFonts(), key=_rank):
            if left & _letters(path):
                left -= _letters(path)
                found.append(path)
            if not left:
                break
    return tuple(found)


@lru_cache
def _families(letters: frozenset[str]) -> tuple[str, ...]:
    known = font_manager.fontManager  # its list is kept on disk, and may be older than a font
    for path in _chosen(letters):
        before = len(known.ttflist)
        known.addfont(path)  # a file may have several
        known.ttflist += [replace(each, weight=BOLD) for each in known.ttflist[before:]]  # no message for bold texts
    return tuple(FT2Font(path).family_name for path in _chosen(letters))


def _rank(path: str) -> tuple[bool, str]:
    name = Path(path).name.lower()
    return any(style in name for style in OTHER_STYLES), name


@lru_cache
def _letters(path: str) -> frozenset[str]:
    """The letters of a font; none of one that matplotlib cannot draw, as of coloured pictures."""
    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()
