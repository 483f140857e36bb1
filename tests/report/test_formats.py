"""Markdown, CSV, LaTeX and HTML of a table: what each shows of a cell, and that no text is more than text."""

import csv
import html
import io
import re

import handmade
import pytest
from handmade import tabulated
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.printable import printable
from harness.report import table_forms
from harness.report.content import Cell, Column, Line, Table
from harness.report.printed_numbers import PrintedNumbers
from harness.report.table_forms import MAX_TEXT

HOSTILE = [
    "=cmd|'/c calc'!A1",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    " \t=1+1",
    "\r\n=1+1",
    'a,b;"c"',
    "\\input{/etc/passwd} \\write18{x} \\end{tabular}",
    "a & b \\\\ c % d # e $x$ {f} ~ ^ _ | < > \" ` '",
    "[1em] *",
    "**b** <b> `c` |",
    "a\nb\r\nc\x1b[31m\u202e",
    "x" * 10_000,
    "a|b||",
    "`code` ``",
    "a\\|b\\",
    "<script>alert(1)</script>",
    "&lt;b&gt; & &#60;",
    "[x](javascript:alert(1)) ![x](http://x/y.png)",
    "*a* **b** _c_ ~~d~~ $e$ #",
    "\x07\x00\x9b2J",
    "\u202egnp.exe \u200b\u2066",
    "a\u2028b\x85c\x0bd\x1cd",
    "|" * 10_000,
]
MARKS = "=+-@'\",;\\{}&%$#_~^<>|`[]()* \n\r\t\x1b\u202eab"
ANYTHING = st.text(st.characters(), max_size=60) | st.text(MARKS, max_size=60)


def table(*lines, columns=("head", "n"), title="a title", notes=(), group="") -> Table:
    """Of texts only; the second column and those after it have a group."""
    made = tuple(Column(name=name, group=group if index else "") for index, name in enumerate(columns))
    cells = (tuple(Cell(text=text) for text in line) for line in lines)
    return Table(title=title, columns=made, lines=tuple(Line(cells=each) for each in cells), notes=tuple(notes))


def numbers(cell: Cell, **column) -> Table:
    made = Column(name="test ppl", numeric=True, **column)
    return Table(title="t", columns=(made,), lines=(Line(cells=(cell,)), Line(cells=(Cell(text="-"),))))


def shown(text: str) -> str:
    """What every form should say of a text."""
    line = printable(re.sub(r"[\r\n\t]+", " ", text))
    return (line if len(line) <= MAX_TEXT else f"{line[:MAX_TEXT]} ...").strip()


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


TEX = {name: sign for sign, name in table_forms._LATEX.items()}


def untex(text: str) -> str:
    """LaTeX back to text: what the document would show of it. Fails at what LaTeX would obey."""
    parts = re.split(r"(\\[a-z]+\{\}|\$\\[a-z]+\$|\\[&%$#_{}])", text)
    for part in parts[::2]:
        assert not re.search(r'[\\{}&%$#_~^<>|`"]', part), text
    return "".join(TEX[part] if index % 2 else part for index, part in enumerate(parts))


# markdown


def of_markdown(text: str) -> str:
    """What a reader of markdown sees: no backslash before a mark, characters for entities."""
    return html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text))


def cells(line: str) -> list[str]:
    """The cells of a table's line, split at bars that no backslash escapes."""
    return [of_markdown(part.strip(" ")) for part in re.findall(r"((?:[^|\\]|\\.)*)\|", line.removeprefix("|"))]


@settings(deadline=None, max_examples=500, derandomize=True)
@given(ANYTHING)
def test_markdown_of_a_text_is_one_line_that_shows_what_was_given(text):
    line = table_forms.escaped(text)
    assert len(line.splitlines()) <= 1
    assert of_markdown(line).strip(" ") == shown(text)
    assert not re.search(r"<|&(?!amp;|lt;)|\]\((?<!\\\()", line)
    assert cells(f"| {line} | next |") == [shown(text), "next"]


def rendered(suite, text: str, *made) -> list[str]:
    """The lines of a table in which everything that can be is the hostile text."""
    time = handmade.printed_cell(metric="train_ms_per_batch", value="1", note=text)
    printed = [handmade.printed_cell(value=text), time]
    return tabulated(suite, made, PrintedNumbers(tuple(printed), (text,))).splitlines()


def test_hostile_text_of_records_and_printed_numbers_keeps_the_shape_of_a_suites_table(suite_of, record_of):
    suite = suite_of(handmade.suite_text(heads="[softmax, {mos: {num_mixtures: 2}}]", seeds="[1, 2, 3, 4, 5]"))
    harmless = rendered(suite, "text", record_of(suite.trials[0], "error", "text"))
    for text in HOSTILE:
        failed = record_of(suite.trials[0], "error", text, environment={"device": text, "commit": text})
        lines = rendered(suite, text, failed)
        assert len(lines) == len(harmless)
        table = [cells(line) for line in lines if line.startswith("|")]
        assert {len(row) for row in table} == {len(cells(harmless[2]))}
        first = dict(zip(table[0], table[2], strict=True))
        assert first["printed test ppl"] == shown(text)
        assert any(name.startswith("printed ms/batch (") for name in first)
        assert all(line.startswith(("# ", "|", "- ")) or not line for line in lines)
        assert all(line.isprintable() for line in lines)
        for about in ("Printed numbers of ", "Measured on ", "softmax lstm markov seed=1 "):
            (note,) = (line for line in lines if line.startswith(f"- {about}"))
            assert "<" not in note


# CSV


def test_csv_has_numbers_unrounded_and_beside_them_what_a_cell_has_more():
    cell = Cell(text="86.89 ± 0.31 ‡", value=86.8881, spread=0.3125, interval=(-1.5, 2.5), mark="‡", rank="tie")
    assert read(table_forms.csv(numbers(cell, group="ptb"))) == [
        [f"ptb test ppl{more}" for more in ("", " sd", " low", " high", " rank", " mark")],
        ["86.8881", "0.3125", "-1.5", "2.5", "tie", "‡"],
        [""] * 6,
    ]


def test_csv_of_a_formula_is_text_in_cells_and_headers():
    for text in ("=1+1", "+1", "-1", "@x", " =1", "\t=1", "\r\n=1"):
        for row in read(table_forms.csv(table([text, "x"], columns=(text, "n")))):
            assert row[0] == f"'{text.strip()}"


@settings(deadline=None, max_examples=300, derandomize=True)
@given(ANYTHING)
def test_csv_read_back_says_what_was_given_and_nothing_calculates(text):
    (_, row) = read(table_forms.csv(table([text, "next"])))
    expected = "" if text == "-" else shown(text)
    assert row[0].removeprefix("'") == expected.removeprefix("'")
    assert not row[0].startswith(("=", "+", "-", "@", "\t", "\r", " "))
    assert row[1] == "next"


# LaTeX


def test_latex_of_a_first_cell_is_no_argument_of_the_line_before():
    for text in ("[1em]", "*"):
        assert f"{{}}{text} & b \\\\" in table_forms.latex(table([text, "b"])).splitlines()


@settings(deadline=None, max_examples=300, derandomize=True)
@given(ANYTHING)
def test_latex_shows_every_text_and_obeys_none(text):
    lines = table_forms.latex(table([text, "next"], columns=(text, "n"), title=text, notes=[f"on {text}"])).split("\n")
    (line,) = (line for line in lines if line.endswith(r" & next \\"))
    assert untex(
        line.removesuffix(r" & next \\").removeprefix("{}" * line.startswith(("{}[", "{}*")))
    ).strip() == shown(text)
    assert untex(lines[2].removeprefix(r"\caption{").removesuffix("}")).strip() == shown(text)
    (note,) = (line for line in lines[1:] if line.startswith("%"))
    assert untex(note.removeprefix("%")).strip() == shown(f"on {text}")


def test_html_escapes_every_text():
    hostile = "<script>alert(1)</script> &amp; 'x'"
    made = table([hostile, "x"], columns=(hostile, "n"), title=hostile, notes=[hostile])
    text = table_forms.html(made)
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt; &amp;amp; ") == 4


# all


@pytest.mark.parametrize("form", [table_forms.markdown, table_forms.csv, table_forms.latex, table_forms.html])
def test_hostile_text_changes_the_shape_of_no_form(form):
    def lines(of: str) -> list[str]:
        made = table([of, "x"], ["y", of], columns=(of, "n"), title=of, notes=[of], group=of)
        # a name with a star has the line on stars
        return [line for line in form(made).splitlines() if not line.startswith(r"\par\smallskip")]

    for text in HOSTILE:
        assert len(lines(text)) == len(lines("text")), text
        assert all(line.isprintable() for line in lines(text)), text


def test_only_the_best_is_bold_whatever_the_texts_are():
    cells = (
        Cell(text="1** <b>", value=1.0, rank="best"),
        Cell(text="2", value=2.0, rank="tie"),
        Cell(text="3", value=3.0, rank="behind"),
        Cell(text="4", value=4.0),
    )
    made = Table(title="t", columns=(Column(name="x"),), lines=tuple(Line(cells=(cell,)) for cell in cells))
    rows = [line.strip("| ") for line in table_forms.markdown(made).splitlines() if line.startswith("|")][2:]
    assert rows == [r"**1\*\* &lt;b>**", "2", "3", "4"]


def test_the_csv_is_what_pandas_writes_of_the_frame():
    cells = [
        (Cell(text='a, "b"'), Cell(text="0.3", value=0.1 + 0.2, spread=1e-17), Cell(text="nan", value=float("nan"))),
        (Cell(text="-"), Cell(text="-"), Cell(text="1e22 *", value=1e22, mark="*", interval=(1.5, float("inf")))),
    ]
    columns = (Column(name="head"), Column(name="ppl", numeric=True), Column(name="change", numeric=True))
    table = Table(title="a table", columns=columns, lines=tuple(Line(cells=line) for line in cells))
    assert table_forms.csv(table) == table_forms.frame(table).to_csv(index=False, lineterminator="\n")
    none = Table(title="no row is tuned yet", columns=(), lines=())
    assert table_forms.csv(none) == table_forms.frame(none).to_csv(index=False, lineterminator="\n")
