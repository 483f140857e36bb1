"""Some columns of a table, its default form, and the compact one for a column of a paper."""

from dataclasses import replace

import pytest

from harness.errors import RecordError
from harness.report import layouts
from harness.report.content import Cell, Column, Line, Note, Table

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


def test_spaces_around_a_comma_do_not_matter_and_a_name_may_have_a_comma():
    made = layouts.select(table(), [" test ppl", "last epoch", " vs ", "params", ""])
    assert list(shown(made)) == ["head", "test ppl, last epoch", "vs softmax", "params"]


def test_an_unknown_column_lists_the_known_ones():
    with pytest.raises(
        RecordError, match=r"the table has no column 'tst ppl'; did you mean 'test ppl'.*there are: K, p"
    ):
        layouts.select(table(), ["tst ppl"])
