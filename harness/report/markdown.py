"""Text of anybody's in a markdown file: shown as it is, never as markup. All tables' markdown is made by it."""

import re

from harness.printable import printable

MAX_TEXT = 2_000
_ENTITIES = {"&": "&amp;", "<": "&lt;"}
# Ends a cell, begins code, emphasis, a heading's end, a formula, a link's address; _ only where a word begins or ends.
_MARKS = re.compile(r"[\\|`*~$#]|(?<=\])\(|(?<![^\W_])_|_(?![^\W_])")


def one_line(text: str) -> str:
    """A text in a line: line ends and tabs as spaces, what a reader would not see spelled out, a very long one cut."""
    line = printable(re.sub(r"[\r\n\t]+", " ", text))
    return line if len(line) <= MAX_TEXT else f"{line[:MAX_TEXT]} ..."


def escaped(text: str) -> str:
    """One line of markdown that shows the text."""
    line = one_line(text)
    marked = _MARKS.sub(lambda mark: "\\" + mark[0], line)
    return re.sub("[&<]", lambda sign: _ENTITIES[sign[0]], marked)
