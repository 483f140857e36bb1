"""Some columns of a table, and the compact table for one column of a paper."""

from dataclasses import replace

import pytest

from harness.errors import RecordError
from harness.report.table import chosen_columns, formats
from harness.report.table.content import Cell, Column, Line, Note, Table

COLUMNS = ("head", "K", "params", "test ppl", "test ppl, last epoch", "vs softmax", "train ms/batch", "n")


def table():
    cells = (
        Cell(text="mos"),
        Cell(text="-"),
        Cell(text="4,978,401", value=4978401),
        Cell(text="88.58 ± 0.31", value=88.5812, spread=0.3121),
        Cell(text="89.00", value=89.0),
        Cell(text="-1.3 % [-1.9, -0.7] ***", value=-1.31, interval=(-1.92, -0.7), mark="***"),
        Cell(text="26.3 ± 0.4 ‡", value=26.31, spread=0.4, mark="‡"),
        Cell(text="8/8"),
    )
    columns = tuple(Column(name=name, numeric=name not in ("head", "n")) for name in COLUMNS)
    return Table(title="small", columns=columns, lines=(Line(cells=cells, trials=("a",)),), notes=("a note",))


def shown(made) -> dict[str, str]:
    return dict(zip([column.name for column in made.columns], [cell.text for cell in made.lines[0].cells], strict=True))


def test_named_columns_are_in_the_given_order_behind_the_name_of_the_row():
    made = chosen_columns.select(table(), ["vs", "params", "test ppl, last epoch"])
    assert list(shown(made)) == ["head", "vs softmax", "params", "test ppl, last epoch"]
    assert shown(made)["vs softmax"] == "-1.3 % [-1.9, -0.7] ***"
    assert made.lines[0].trials == ("a",)


def test_a_column_that_is_named_twice_or_names_the_row_is_shown_once():
    made = chosen_columns.select(table(), ["params", "head", "params"])
    assert [column.name for column in made.columns] == ["head", "params"]
    assert [cell.text for cell in made.lines[0].cells] == ["mos", "4,978,401"]


def test_no_names_are_all_columns():
    assert chosen_columns.select(table()) == table()


def test_of_several_corpora_a_name_is_of_all_and_with_its_corpus_of_one():
    columns = (Column(name="head"), *(Column(name="test ppl", group=group) for group in ("ptb", "wt2")))
    made = Table(title="", columns=columns, lines=(Line(cells=(Cell(text="mos"), Cell(text="1"), Cell(text="2"))),))
    assert [column.header for column in chosen_columns.select(made, ["test ppl"]).columns[1:]] == [
        "ptb test ppl",
        "wt2 test ppl",
    ]
    assert [column.header for column in chosen_columns.select(made, ["wt2 test ppl"]).columns[1:]] == ["wt2 test ppl"]


def test_a_note_goes_with_the_columns_that_it_is_about():
    notes = ("of all", Note("of times", ("ms/batch",)), Note("of comparisons", ("vs ", "verdict")))
    whole = replace(table(), notes=notes)
    assert chosen_columns.select(whole, ["test ppl"]).notes == ("of all",)
    assert chosen_columns.select(whole, ["train ms/batch"]).notes == ("of all", "of times")
    assert chosen_columns.select(whole, ["vs"]).notes == ("of all", "of comparisons")
    assert chosen_columns.select(whole, compact=True).notes == notes
    assert chosen_columns.select(whole).notes == notes


@pytest.mark.parametrize(
    "given", ["test ppl, last epoch,vs , params", "test ppl, last epoch, vs,params,", " test ppl,last epoch,vs,params"]
)
def test_spaces_around_a_comma_do_not_matter_and_a_name_may_have_a_comma(given):
    made = chosen_columns.select(table(), given.split(","))
    assert list(shown(made)) == ["head", "test ppl, last epoch", "vs softmax", "params"]


def test_an_unknown_column_lists_the_known_ones():
    with pytest.raises(
        RecordError, match=r"the table has no column 'tst ppl'; did you mean 'test ppl'.*there are: K, p"
    ):
        chosen_columns.select(table(), ["tst ppl"])


def test_a_compact_table_has_few_columns_short_cells_and_no_empty_column():
    made = chosen_columns.select(table(), compact=True)
    assert shown(made) == {
        "head": "mos",
        "params": "4.98M",  # 4,978,401 / 10^6
        "test ppl": "88.58 ± 0.31",
        "vs softmax": "-1.3 % ***",
        "ms/batch": "26 ‡",
    }
    assert "K" not in shown(chosen_columns.select(table(), ["K", "params"], compact=True))


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        (("8/8", "6/6"), None),
        (("8/8", "7/8: 1 not run"), ["8/8", "7/8"]),
        (("8/8", "0/8: 2 diverged, 6 not run"), ["8/8", "0/8"]),
        (("5/5", "5/5"), ["5/5", "5/5"]),  # too few for a verdict
        (("8/8", "8/8 °"), ["8/8", "8/8 °"]),
        (("8/8", "7/8: 1 oom °"), ["8/8", "7/8 °"]),
    ],
)
def test_a_compact_table_has_the_numbers_of_seeds_where_a_row_has_fewer_than_planned_or_too_few(states, shown):
    marks = ["°" if "°" in state else "" for state in states]
    cells = [Cell(text=state, mark=mark) for state, mark in zip(states, marks, strict=True)]
    whole = Table(
        title="",
        columns=(Column(name="head"), Column(name="n")),
        lines=tuple(Line(cells=(Cell(text="mos"), cell)) for cell in cells),
    )
    made = chosen_columns.select(whole, compact=True)
    assert [column.name for column in made.columns] == (["head"] if shown is None else ["head", "n"])
    assert [line.cells[-1].text for line in made.lines] == (["mos", "mos"] if shown is None else shown)


def compared(*rows):
    """A table of rows: head, change, stars, verdict."""
    names = ("head", "vs softmax", "verdict")
    lines = []
    for head, change, stars, verdict in rows:
        text = f"{change:+.1f} % [-9.0, 9.0] {stars}".strip()
        against = Cell(text=text, value=change, interval=(-9.0, 9.0), mark=stars)
        lines.append(Line(cells=(Cell(text=f"{head} ¶", mark="¶"), against, Cell(text=verdict))))
    return Table(title="", columns=tuple(Column(name=name) for name in names), lines=tuple(lines), notes=("a note",))


def test_a_compact_table_has_no_column_of_verdicts_and_keeps_them_as_marks_and_notes():
    whole = compared(
        ("mos", -3.0, "***", "better"),
        ("moc", -0.2, "*", "equivalent"),
        ("gss", 2.4, "", "undecided: coarse tuning"),
        ("doc", 1.0, "", "undecided"),
        ("mfs", 2.5, "", "undecided: coarse tuning"),
        ("plif", -9.0, "", "too few seeds"),
    )
    made = chosen_columns.select(whole, compact=True)
    assert [column.name for column in made.columns] == ["head", "vs softmax"]
    changes = ["-3.0 % ***", "-0.2 % * =", "+2.4 % ?", "+1.0 % ?", "+2.5 % ?", "-9.0 % ?"]
    assert [line.cells[1].text for line in made.lines] == changes
    assert made.notes[1:] == (
        "? undecided: coarse tuning: gss; mfs.",
        "? undecided: doc.",
        "? too few seeds: plif.",
        "a note",
    )
    assert made.notes[0].startswith("= equivalent: ")
    assert chosen_columns.select(whole, ["vs"]).lines[2].cells[1].text == "+2.4 % [-9.0, 9.0]"  # not compact
    assert chosen_columns.select(compared(("mos", -3.0, "***", "better")), compact=True).notes == ("a note",)


def test_verdicts_are_marks_of_the_comparison_on_their_own_corpus():
    columns = (
        Column(name="head"),
        *(Column(name=name, group=group) for group in ("ptb", "wt2") for name in ("vs softmax", "verdict")),
    )
    change = Cell(text="+1.0 %", value=1.0)
    line = Line(cells=(Cell(text="mos"), change, Cell(text="worse"), change, Cell(text="undecided")))
    made = chosen_columns.select(Table(title="", columns=columns, lines=(line,)), compact=True)
    assert [cell.text for cell in made.lines[0].cells] == ["mos", "+1.0 %", "+1.0 % ?"]
    assert made.notes == ("? undecided: mos, wt2.",)


def test_compact_latex_is_as_wide_as_a_column_and_its_notes_are_comments():
    text = formats.latex(chosen_columns.select(table(), compact=True), compact=True)
    assert r"max width=\columnwidth" in text
    assert "\n% a note\n" in text
    assert "itemize" not in text
    whole = formats.latex(table())
    assert r"max width=\textwidth" in whole
    assert r"\item{} a note" in whole
