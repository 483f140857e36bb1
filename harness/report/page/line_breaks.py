"""Where a line of a cell or a header may break, so that a table fits a narrow screen."""

import re

from markupsafe import Markup

from harness.printable import printable


def parts(text: str) -> list[str]:
    """The parts of a cell between which a narrow screen may break the line: '88.58', '± 0.31'; '88.58,', '90.12'."""
    return re.split(r" (?=[±\[])|(?<=\d,) (?=\d)", text)


def breakable(text: str, at_equals: bool = False) -> Markup:
    """A text with more places where its line may break: after the '(' of 'softmax(projection=True)', or in 'long_name'.

    Such a place is no character: it is not copied, searched or sorted by.

    Args:
        at_equals: also between a parameter and its value, for the narrowest columns.
    Returns: markup, in which all of the text is escaped.
    """
    after = r"(?<=\w\()" if "=" in text else r"(?<=\w[(_])"
    after += r"|(?<==)" if at_equals else ""
    return Markup("<wbr>").join(re.split(rf"(?:{after})(?=\S)", printable(text)))
