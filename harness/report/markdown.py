"""Escape text for markdown, so that it is never taken as markup. All markdown tables use it."""

import re

from harness.printable import printable

MAX_TEXT = 2_000
_ENTITIES = {"&": "&amp;", "<": "&lt;"}
# Characters that end a cell, or begin code, emphasis, a formula or the address of a link; _ only at the ends of a word.
_MARKS = re.compile(r"[\\|`*~$#]|(?<=\])\(|(?<![^\W_])_|_(?![^\W_])")


def one_line(text: str) -> str:
    """A text in one line: line ends and tabs as spaces, invisible characters spelled out, a very long text cut."""
    line = printable(re.sub(r"[\r\n\t]+", " ", text))  # guard: line-ends -> line = text
    return line if len(line) <= MAX_TEXT else f"{line[:MAX_TEXT]} ..."


def escaped(text: str) -> str:
    """One line of markdown that shows the text literally."""
    line = one_line(text)
    marked = _MARKS.sub(lambda mark: "\\" + mark[0], line)  # guard: markdown-marks -> marked = line
    return re.sub("[&<]", lambda found: _ENTITIES[found[0]], marked)  # guard: markdown-tags -> return marked
