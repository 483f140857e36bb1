"""Text from files, records and the command line, as it may be shown: on a terminal, in a sentence, in a table."""

import unicodedata

MAX_SENTENCE = 2_000
# Unassigned code points and private ones stay: fonts decide. Zl and Zp end lines, Cf reorders or hides text.
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def printable(text: str) -> str:
    """The same text with what a terminal would obey or a reader would not see spelled out: '\\x1b[31m', '\\u202e'."""
    if text.isprintable():
        return text
    return "".join(_spelled(c) if unicodedata.category(c) in _UNSEEN else c for c in text)


def sentence(text: str) -> str:
    """A printable sentence of bounded length: of a very long one its beginning and its end."""
    half = MAX_SENTENCE // 2
    shown = text if len(text) <= MAX_SENTENCE else f"{text[:half]} ... {text[-half:]}"
    return printable(shown)


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
