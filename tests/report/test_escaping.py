"""Hostile text in a table, its notes and its title: every cell stays a cell, and says what it said."""

import html
import re

import handmade
import pytest
from handmade import tabulated
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import HarnessError
from harness.printable import printable
from harness.report import printed_numbers
from harness.report.printed_numbers import PrintedCell, PrintedNumbers
from harness.report.table_forms import MAX_TEXT, escaped

SUITE = handmade.suite_text(version="3", heads="[softmax, {mos: {num_mixtures: 2}}]", seeds="[1, 2, 3, 4, 5]")
HOSTILE = [
    "a|b||",
    "a\nb\r\nc\rd",
    "`code` ``",
    "a\\|b\\",
    "<script>alert(1)</script>",
    "&lt;b&gt; & &#60;",
    "[x](javascript:alert(1)) ![x](http://x/y.png)",
    "*a* **b** _c_ ~~d~~ $e$ #",
    "\x1b[31m\x07\x00\x9b2J",
    "\u202egnp.exe \u200b\u2066",
    "a\u2028b\x85c\x0bd\x1cd",
    "=cmd|'/c calc'!A1",
    "x" * 10_000,
    "|" * 10_000,
]
ANYTHING = st.text(st.characters(), max_size=60) | st.text("|\\`<>&*_[]()~$#\n\r\t \x1b\u202eab", max_size=60)


def seen(text: str) -> str:
    """What a reader should see of a text."""
    line = printable(re.sub(r"[\r\n\t]+", " ", text))
    return (line if len(line) <= MAX_TEXT else f"{line[:MAX_TEXT]} ...").strip(" ")


def shown(markdown: str) -> str:
    """What a reader of markdown sees: no backslash before a mark, characters for entities."""
    return html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", markdown))


def cells(line: str) -> list[str]:
    """The cells of a table's line, split at bars that no backslash escapes."""
    return [shown(part.strip(" ")) for part in re.findall(r"((?:[^|\\]|\\.)*)\|", line.removeprefix("|"))]


def rendered(suite, text: str, *made) -> list[str]:
    """The lines of a table in which everything that can be is the hostile text."""
    cell = {"corpus": "markov", "backbone": "lstm", "head": "softmax", "params": {}, "weights": "best", "counting": ""}
    printed = [
        PrintedCell(**cell, metric="test_ppl", value=text, note=""),
        PrintedCell(**cell, metric="train_ms_per_batch", value="1", note=text),
    ]
    return tabulated(suite, made, PrintedNumbers(tuple(printed), (text,))).splitlines()


@settings(deadline=None, max_examples=500, derandomize=True)
@given(ANYTHING)
def test_table_escape_is_one_line_that_shows_what_was_given(text):
    line = escaped(text)
    assert len(line.splitlines()) <= 1
    assert shown(line).strip(" ") == seen(text)
    assert not re.search(r"<|&(?!amp;|lt;)|\]\((?<!\\\()", line)
    assert cells(f"| {line} | next |") == [seen(text), "next"]


def test_table_escape_keeps_the_shape_of_the_table_and_the_text_of_cells(suite_of, record_of):
    suite = suite_of(SUITE)
    harmless = rendered(suite, "text", record_of(suite.trials[0], "error", "text"))
    for text in HOSTILE:
        failed = record_of(suite.trials[0], "error", text, environment={"device": text, "commit": text})
        lines = rendered(suite, text, failed)
        assert len(lines) == len(harmless)
        table = [cells(line) for line in lines if line.startswith("|")]
        assert {len(row) for row in table} == {len(cells(harmless[2]))}
        first = dict(zip(table[0], table[2], strict=True))
        assert first["printed test ppl"] == seen(text)
        assert any(name.startswith("printed ms/batch (") for name in first)
        assert all(line.startswith(("# ", "|", "- ")) or not line for line in lines)
        assert all(line.isprintable() for line in lines)
        for about in ("Printed numbers of ", "Measured on ", "softmax lstm markov seed=1 "):
            (note,) = (line for line in lines if line.startswith(f"- {about}"))
            assert "<" not in note


def test_table_escape_in_the_title_of_a_suite_that_was_changed(suite_of):
    suite = suite_of(SUITE + "table: {baseline: softmax}\n", "train.lr=2 # <script>|`x`\x0b[a](b)".replace("\x0b", ""))
    title = tabulated(suite).splitlines()[0]
    assert title.startswith("# suite, version 3; CHANGED: train.lr = 2 \\# &lt;script>\\|\\`x\\`[a]\\(b) instead of ")


def test_a_mistake_of_the_file_that_the_command_line_mends_is_told_as_a_change(suite_of):
    for wrong in ("''", "two", "[1]", "'" + "9" * 5_000 + "'", "~", "'['"):
        suite = suite_of(SUITE.replace("epochs: 2", f"epochs: {wrong}"), "train.epochs=1")
        title = tabulated(suite).splitlines()[0]
        assert title.startswith("# suite, version 3; CHANGED: train.epochs = 1")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the column 'table' is missing"),
        (b"table,corpus\n1,ptb\n", "the column 'params' is missing"),
        (b"\xff\xfe", "cannot be read as CSV"),
        (",".join(printed_numbers.CELL).encode() + b'\n"' + b"x" * 200_000, "cannot be read as CSV"),
        (b" " * 5_000_000, "cannot be read as CSV"),
        (",".join(printed_numbers.CELL).encode() + b"\n1,a=[", "the parameters 'a=[': '[' cannot be read"),
    ],
)
def test_printed_numbers_that_are_no_table_are_a_sentence(content, reason, suite_of, tmp_path):
    folder = tmp_path / "results" / "published"
    folder.mkdir(parents=True)
    (folder / "paper.csv").write_bytes(content)
    suite = suite_of(SUITE + "table: {compare: paper/1}\n")
    with pytest.raises(HarnessError) as caught:
        printed_numbers.load(suite)
    assert str(caught.value).startswith(f"{folder / 'paper.csv'}: {reason}")
