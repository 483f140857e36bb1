"""Some columns of a table, its default form, and the compact one for a column of a paper."""

from dataclasses import replace

import pytest

from harness.errors import RecordError
from harness.report import layouts, table_forms
from harness.report.content import Cell, Column, Line, Note, Table, legend

COLUMNS = {  # name -> key
    "head": "label",
    "K": "",
    "params": "params_total",
    "test ppl": "test_ppl",
    "test ppl, last epoch": "",
    "vs softmax": "change",
    "train ms/batch": "train_ms_per_batch",
    "n": "n",
}
LINK = "What columns, marks and tests mean: harness docs tables, harness docs statistics."


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
    topics = {"train_ms_per_batch": ("time",), "change": ("comparison",)}
    columns = tuple(
        Column(name=name, key=key, numeric=name not in ("head", "n"), topics=topics.get(key, ()))
        for name, key in COLUMNS.items()
    )
    return Table(title="small", columns=columns, lines=(Line(cells=cells, trials=("a",)),), notes=("a note",))


def shown(made) -> dict[str, str]:
    return dict(zip([column.name for column in made.columns], [cell.text for cell in made.lines[0].cells], strict=True))


def test_named_columns_are_in_the_given_order_behind_the_name_of_the_row():
    made = layouts.select(table(), ["vs", "params", "test ppl, last epoch"])
    assert list(shown(made)) == ["head", "vs softmax", "params", "test ppl, last epoch"]
    assert shown(made)["vs softmax"] == "-1.3 % [-1.9, -0.7] ***"
    assert made.lines[0].trials == ("a",)


def test_a_column_that_is_named_twice_or_names_the_row_is_shown_once():
    made = layouts.select(table(), ["params", "head", "params"])
    assert [column.name for column in made.columns] == ["head", "params"]
    assert [cell.text for cell in made.lines[0].cells] == ["mos", "4,978,401"]


def test_the_default_form_has_few_columns_and_says_where_the_others_are():
    made = layouts.select(replace(table(), suite="small"))
    assert list(shown(made)) == ["head", "params", "test ppl", "vs softmax", "train ms/batch", "n"]
    assert made.notes[-1] == f"2 more columns and 1 more note: harness table small --wide. {LINK}"


def test_the_default_form_has_eight_kinds_of_columns_and_leaves_out_the_least_important_ones():
    keys = [*(each for each in layouts.ORDER if each != "label"), "", "params_total", "tuned"]
    columns = (Column(name="head", key="label"), Column(name="backbone", key="label"))
    columns += tuple(Column(name=f"{key} {place}", key=key) for place, key in enumerate(keys))
    line = Line(cells=tuple(Cell(text="1") for _ in columns))
    made = layouts.select(Table(title="", columns=columns, lines=(line,)))
    found = list(dict.fromkeys(column.key for column in made.columns))
    assert found == ["label", "test_ppl", "change", "verdict", "n", "printed", "reproduced"]
    assert [column.name for column in made.columns][:2] == ["head", "backbone"]


def test_the_default_form_has_six_notes_those_that_warn_first():
    levels = ("detail", "reading", "reading", "warning", "reading", "warning")
    notes = tuple(Note(f"{level} {place}", level=level) for place, level in enumerate(levels))
    made = layouts.select(replace(table(), notes=notes, conditions="one seed", suite="small"))
    assert made.notes[:4] == ("one seed", "warning 3", "warning 5", "reading 1")
    assert made.notes[4].startswith("‡ timed while other work ran")
    assert made.notes[5].startswith("2 more columns and 3 more notes: ")
    assert len(made.notes) == 6


def test_marks_are_explained_where_they_are():
    assert legend(replace(table(), lines=())) == []
    (line,) = legend(table())
    assert [part.split()[0] for part in line.split("; ")] == ["‡", "p"]


def test_a_line_of_the_wide_form_is_not_in_the_default_one():
    lines = (table().lines[0], replace(table().lines[0], is_main=False))
    assert len(layouts.select(replace(table(), lines=lines)).lines) == 1
    assert len(layouts.select(replace(table(), lines=lines), wide=True).lines) == 2


def test_of_several_corpora_a_name_is_of_all_and_with_its_corpus_of_one():
    columns = (Column(name="head", key="label"), *(Column(name="test ppl", group=group) for group in ("ptb", "wt2")))
    made = Table(title="", columns=columns, lines=(Line(cells=(Cell(text="mos"), Cell(text="1"), Cell(text="2"))),))
    assert [column.header for column in layouts.select(made, ["test ppl"]).columns[1:]] == [
        "ptb test ppl",
        "wt2 test ppl",
    ]
    assert [column.header for column in layouts.select(made, ["wt2 test ppl"]).columns[1:]] == ["wt2 test ppl"]


def test_a_note_goes_with_the_columns_that_it_is_about():
    notes = ("of all", Note("of times", "time"), Note("of comparisons", "comparison"))
    whole = replace(table(), notes=notes)
    assert layouts.select(whole, ["test ppl"]).notes == ("of all",)
    assert layouts.select(whole, ["train ms/batch"]).notes == ("of all", "of times")
    assert layouts.select(whole, ["vs"]).notes == ("of all", "of comparisons")
    assert layouts.select(whole, wide=True).notes == notes


@pytest.mark.parametrize(
    "given", ["test ppl, last epoch,vs , params", "test ppl, last epoch, vs,params,", " test ppl,last epoch,vs,params"]
)
def test_spaces_around_a_comma_do_not_matter_and_a_name_may_have_a_comma(given):
    made = layouts.select(table(), given.split(","))
    assert list(shown(made)) == ["head", "test ppl, last epoch", "vs softmax", "params"]


def test_an_unknown_column_lists_the_known_ones():
    with pytest.raises(
        RecordError, match=r"the table has no column 'tst ppl'; did you mean 'test ppl'.*there are: K, p"
    ):
        layouts.select(table(), ["tst ppl"])


def test_a_compact_table_has_short_cells_and_no_empty_column():
    made = layouts.select(table(), compact=True)
    assert shown(made) == {
        "head": "mos",
        "params": "4.98M",  # 4,978,401 / 10^6
        "test ppl": "88.58 ± 0.31",
        "vs softmax": "-1.3 % ***",
        "train ms/batch": "26 ‡",
        "n": "8/8",
    }
    assert "K" not in shown(layouts.select(table(), ["K", "params"], compact=True))


@pytest.mark.parametrize(
    ("key", "cell", "short"),
    [
        ("n", Cell(text="7/8: 1 not run", short="7/8"), "7/8"),
        ("n", Cell(text="7/8: 1 oom °", short="7/8", mark="°"), "7/8 °"),
        ("train_ms_per_batch", Cell(text="63.2 ± 1.5 (4.6x)", value=63.2, ratio=4.6), "63 (4.6x)"),
        ("train_ms_per_batch", Cell(text="63.2 ‡", value=63.2, mark="‡"), "63 ‡"),
        ("change", Cell(text="-"), "-"),
    ],
)
def test_cells_of_a_compact_table_are_short(key, cell, short):
    lines = tuple(Line(cells=(each,)) for each in (cell, Cell(text="1")))
    made = Table(title="", columns=(Column(name="x", key=key),), lines=lines)
    assert layouts.select(made, compact=True).lines[0].cells[0].text == short


def test_compact_latex_is_as_wide_as_a_column_and_notes_are_comments():
    text = table_forms.latex(layouts.select(table(), compact=True), compact=True)
    assert r"max width=\columnwidth" in text
    assert f"{LINK}\n\\end{{table}}" in text
    whole = table_forms.latex(replace(table(), suite="small", caption="A caption"))
    assert r"max width=\textwidth" in whole
    assert "\n% a note\n" in whole
    assert "\\caption{A caption}\n\\label{tab:small}" in whole
