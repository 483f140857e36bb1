"""Words and phrases that this project does not use, in names, docstrings, comments, messages and documents.

They were a private dialect of the code, or phrases that a reader of English as a second language has to read twice.
`NAMES` holds words of identifiers and of module names: `was_told` and `Told` both have the word 'told'. `PHRASES` holds
regular expressions for text; a space in one matches a line break, too. Each has what to write instead.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
CODE = sorted(p for folder in ("harness", "heads", "backbones", "benchmarks") for p in (ROOT / folder).rglob("*.py"))
DOCUMENTS = sorted(
    path
    for pattern in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "docs/**/*.md", "suites/*.yaml", "harness/**/*.html")
    for path in ROOT.glob(pattern)
)
NAMES = {  # a word of an identifier -> what to write instead
    "told": "reported, shown, named",
    "tell": "report, warn, log, show",
    "tells": "reports, shows",
    "parcel": "payload",
    "parcels": "payloads",
    "side": "pair, or what is compared: head, trial",
    "sides": "pairs",
    "standing": "entry, group",
    "standings": "entries, groups, leaderboard",
    "signs": "legend, marks",
    "spent": "history, used",
    "unfolded": "details",
    "passed": "pass_id for the id of a timing pass; ok for the outcome of a check",
    "taken_up": "resumed",
    "put_down": "suspended",
}
PHRASES = {  # a regular expression -> what to write instead
    r"\btold\b": "reported, given, named; 'unless set otherwise'",
    r"\btell(s|ing)?\b": "report, show, say; 'distinguish' for 'tell apart'",
    r"\bt(ake|akes|aken|aking|ook) up\b": "resume",
    r"\bput(s|ting)? down\b": "suspend",
    r"\bparcels?\b": "payload",
    r"\b(a|one|each|both|either|the two|two) sides?\b(?! of (a|an|the) (equation|page))|(?<!by )\bsides\b": "pairs",
    r"(?<![-\w])standings?\b": "entries, groups, leaderboard",
    r"(?<!patterns of )(?<!\bboth )(?<!money )(?<!\()\bsigns\b(?! of (the )?(differences|numbers))": "marks, legend",
    r"(?<!time )(?<!minutes )(?<!seconds )\bspent\b": "used",
    r"\bunfolded\b": "details",
    r"\bpassed on\b": "reported",
    r"\b(is|are|was|were|be) through\b": "is finished",
    r"\bat hand\b": "available, local",
    r"\banybody('s)?\b|\bsomebody else's\b": "'any author', 'third-party'",
    r"\bwho(m)?ever\b": "'any process', 'any user'",
    r"\bwhere there (is|are) (one|none|some|any)\b": "'if there is one', 'if available'",
    r"\bas it stands\b": "'unchanged', 'at present'",
    r"\bnothing of the kind\b": "'none'",
    r"\b(and|or) the like\b": "name the things, or 'and similar'",
    r"\b(hear|hears|heard) of\b": "'is informed of', 'receives'",
    r"\bknows? of\b": "'has', 'lists'",
    r"\bby (itself|themselves)\b": "'alone', 'automatically', 'separately'",
}
_COMPILED = {re.compile(pattern.replace(" ", r"\s"), re.IGNORECASE): instead for pattern, instead in PHRASES.items()}
_LINE_BREAK = re.compile(r"[ \t]*\n[ \t]*")
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_F_STRING = getattr(tokenize, "FSTRING_MIDDLE", None)  # from Python 3.12 on


class Text(NamedTuple):
    """A docstring, comment, message or document, and its first line."""

    line: int
    text: str


def python_problems(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, word, what to write instead) of a module."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.type == tokenize.NAME and not _is_file_position(before, token, after):
            yield from ((token.start[0], word, instead) for word, instead in name_problems(token.string))
    for text in _texts(tokens):
        yield from text_problems(text)


def name_problems(identifier: str) -> Iterator[tuple[str, str]]:
    """(word, what to write instead) of one name."""
    words = [part.lower() for part in _PARTS.findall(identifier)]
    for word, instead in NAMES.items():
        if f"_{word}_" in f"_{'_'.join(words)}_":
            yield word, instead


def text_problems(text: Text) -> Iterator[tuple[int, str, str]]:
    """(line, phrase, what to write instead) of a text."""
    without_indents = _LINE_BREAK.sub("\n", text.text)
    for pattern, instead in _COMPILED.items():
        for found in pattern.finditer(without_indents):
            line = text.line + without_indents.count("\n", 0, found.start())
            yield line, " ".join(found[0].split()), instead


def _texts(tokens: list[tokenize.TokenInfo]) -> Iterator[Text]:
    """Strings, and comments with the lines that continue them. A string of one word is a key and no sentence."""
    comment: Text | None = None
    for token in tokens:
        if token.type == tokenize.COMMENT:
            follows = comment is not None and comment.line + comment.text.count("\n") + 1 == token.start[0]
            line, before = (comment.line, comment.text + "\n") if follows else (token.start[0], "")
            if comment is not None and not follows:
                yield comment
            comment = Text(line, before + token.string.lstrip("# "))
        is_key = token.string.strip("rbfuRBFU\"'").isidentifier()
        if token.type == _F_STRING or (token.type == tokenize.STRING and not is_key):
            yield Text(token.start[0], token.string)
    if comment is not None:
        yield comment


def _is_file_position(before, token, after) -> bool:
    """`file.tell()` is Python's."""
    return token.string == "tell" and before is not None and before.string == "." and after.string == "("


def problems(path: Path) -> list[str]:
    """'harness/model.py:12: 'told': write reported, shown, named', one for each word."""
    text = path.read_text(encoding="utf-8")
    found = python_problems(text) if path.suffix == ".py" else text_problems(Text(1, text.replace("\n#", "\n ")))
    places = [(line, word, instead) for line, word, instead in found]
    places += [(1, f"{word}' in the module's name '", instead) for word, instead in name_problems(path.stem)]
    name = path.relative_to(ROOT).as_posix()
    return [f"{name}:{line}: '{word}': write {instead}" for line, word, instead in sorted(places)]


@pytest.mark.parametrize("room", sorted({path.relative_to(ROOT).parts[:2] for path in CODE}), ids="/".join)
def test_code_uses_no_forbidden_word(room):
    found = [each for path in CODE if path.relative_to(ROOT).parts[:2] == room for each in problems(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_document_uses_no_forbidden_word(path):
    found = problems(path)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "told = 1",
        "class ToldTwice: ...",
        "def was_told(): ...",
        "'''What the system tells.'''",
        "# the trial is taken\n# up again",
        "'''In a GPU, where there\n    is one.'''",
        "print(f'{1} of anybody')",
        "def f(sides): ...",
    ],
)
def test_a_forbidden_word_is_found(source):
    assert list(python_problems(source))


@pytest.mark.parametrize(
    "source",
    [
        "position = file.tell()",
        "key = 'passed'",
        "'''All checks passed; weights of both signs; patterns of signs; money signs; two heads side by side.'''",
        "'''The papers' claims; the time spent on it.'''",
        "retold = outside = beside = signsum = 1",
    ],
)
def test_an_ordinary_word_is_not_found(source):
    assert not list(python_problems(source))


def test_a_finding_has_its_line():
    source = '"""One line.\n\nAnother, that tells.\n"""\n\nx = 1  # told\n'
    assert [(line, word) for line, word, _ in python_problems(source)] == [(3, "tells"), (6, "told")]
