"""Make text fit to show on a terminal, in a message or in a table: what comes from files and the command line, numbers
of things.
"""

import unicodedata

MAX_SENTENCE = 2_000
# Control characters (Cc), formats that reorder or hide text (Cf), surrogates (Cs), line and paragraph separators (Zl,
# Zp). Unassigned and private code points are kept: whether they are visible depends on the font.
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def printable(text: str) -> str:
    """Return the text with control characters and invisible characters written as escapes: '\\x1b[31m', '\\u202e'."""
    if text.isprintable():
        return text
    return "".join(_spelled(c) if unicodedata.category(c) in _UNSEEN else c for c in text)


def sentence(text: str) -> str:
    """Return a printable text of at most about MAX_SENTENCE characters. Of a longer one, the middle is left out."""
    half = MAX_SENTENCE // 2
    shown = text if len(text) <= MAX_SENTENCE else f"{text[:half]} ... {text[-half:]}"
    return printable(shown)


def counted(number: float, noun: str, plural: str = "") -> str:
    """Return '1 trial', '2 trials', '1,000 trials', '0.5 epochs'.

    Args:
        plural: of a noun whose plural is not made by an 's'.
    """
    shown = int(number) if number == int(number) else number
    return f"{shown:,} {noun if number == 1 else plural or f'{noun}s'}"


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
