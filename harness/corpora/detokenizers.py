"""Convert word-level corpora back to plain text, as far as possible, for models that read plain text.

What the preprocessing removed is not restored: Penn Treebank is in lower case, without punctuation, with <unk> and N,
and WikiText-2 has <unk>. A separate `'` after an s is read as a possessive. Other separate quotes are read as pairs
within a line. The rules are applied to each line in the order of the lists below.
"""

import re

VERSION = 1  # part of the key of token files: increase it with every change of a rule

_WIKITEXT = [
    (r" @([-,.])@ ", r"\1"),  # red @-@ tipped, 1 @,@ 000, 0 @.@ 7
    (r"(?<=\d) \u2013 (?=\d)", "\u2013"),  # an en dash from number to number
    (r" (\u2014|/) ", r"\1"),  # em dash
    (r" \u00b0 (?=[CF]\b)", " \u00b0"),  # degrees
    (r'" ([^"]*?) "', r'"\1"'),
    (r"(?<=\w) '(?=\w)", "'"),  # it 's, didn 't, O 'Brien
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
    """Return text of WikiText without the spaces around punctuation. Headings are as in a wiki: == Life cycle ==."""
    return _by_lines(text, [_HEADING, *_WIKITEXT])


def detokenize_ptb(text: str) -> str:
    """Return text of Penn Treebank with clitics and currency symbols joined to their words."""
    return _by_lines(text, _PTB)


def _by_lines(text: str, rules: list) -> str:
    lines = [line.strip(" ") for line in text.split("\n")]
    for pattern, replacement in rules:
        compiled = re.compile(pattern)
        lines = [compiled.sub(replacement, line) for line in lines]
    return "\n".join(lines)
