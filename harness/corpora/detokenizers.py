"""Word-level corpora back to the text they were made from, as far as that can be told; for models that read plain text.

What the preprocessing took away stays away: Penn Treebank is lower case, without punctuation, with <unk> and N, and
WikiText-2 has <unk>. A lone `'` after an s is read as a possessive; other lone quotes are taken in pairs within a line.
Rules are applied to each line in the order in which they stand here.
"""

import re

VERSION = 1  # part of the token files' key: raise it with any rule

_WIKITEXT = [
    (r" @([-,.])@ ", r"\1"),  # red @-@ tipped, 1 @,@ 000, 0 @.@ 7
    (r"(?<=\d) \u2013 (?=\d)", "\u2013"),  # an en dash from number to number
    (r" (\u2014|/) ", r"\1"),  # em dash
    (r" \u00b0 (?=[CF]\b)", " \u00b0"),  # degrees
    (r'" ([^"]*?) "', r'"\1"'),
    (r"(?<=\w) '(?=\w)", "'"),  # it 's, did n 't, O 'Brien
    (r"(?<=s) '(?= |$)", "'"),  # the players ' union
    (r"(?<!\w)' ([^']*(?:\w'\w[^']*)*) '(?!\w)", r"'\1'"),
    (r"([(\[\u201c\u2018\u00a3$\u20b9]) ", r"\1"),
    (r" ([)\]\u201d\u2019]|[,.;:!?%]|\.\.+)(?= |$|[)\]\u201d\u2019,.;:!?\"'\u2014\u2013/])", r"\1"),
]
_HEADING = (r"^((?:= )+)(.*?)((?: =)+)$", lambda found: re.sub(r"(?<==) (?==)", "", found[0]))
_PTB = [
    (r" n't\b", "n't"),
    (r" '(s|re|ve|ll|d|m)\b", r"'\1"),
    (r"(?<=s) '(?= |$)", "'"),  # viewers ' opinions
    (r"(?<!\w)([$#]|[acu]s?\$) (?=N\b)", r"\1"),  # $ N, c$ N
]


def detokenize_wikitext(text: str) -> str:
    """WikiText's spaced tokens as prose; headings as in a wiki's source, == Life cycle ==."""
    return _by_lines(text, [_HEADING, *_WIKITEXT])


def detokenize_ptb(text: str) -> str:
    """Penn Treebank's clitics and money signs joined to their words."""
    return _by_lines(text, _PTB)


def _by_lines(text: str, rules: list) -> str:
    lines = [line.strip(" ") for line in text.split("\n")]
    for pattern, replacement in rules:
        compiled = re.compile(pattern)
        lines = [compiled.sub(replacement, line) for line in lines]
    return "\n".join(lines)
