"""The markdown table: our numbers with their spread, beside the printed ones."""

import os
import re
from dataclasses import replace

import handmade
import pytest
from handmade import cells, findings, notes, tabulated

from harness.plan.model_notes import PlanNote
from harness.plan.suite_file import DynamicSpec
from harness.printable import counted
from harness.report import suite_table
from harness.report.content import Column, Table
from harness.report.notes import conditions, notes_of
from harness.report.printed_numbers import PrintedCell, PrintedNumbers

SUITE = handmade.suite_text(
    version="3", heads="[softmax, {mos: {num_mixtures: [2, 3]}}]", seeds="[1, 2, 3]", table="{baseline: softmax}"
)
PTB = handmade.suite_text(
    corpora="[{ptb: {boundary: BOUNDARY}}]",
    backbones="[transformer_encoder]",
    heads="[softmax, mos]",
    train="{optimizer: sgd, lr: 7, epochs: 2, batch_size: 20, seq_len: 35}",
    seeds="[1, 2]",
)


def printed_cell(**changes) -> PrintedCell:
    return handmade.printed_cell(**{"value": "95.0", "weights": "last", **changes})


def render(suite, made, *printed: PrintedCell) -> str:
    numbers = PrintedNumbers(printed, ("paper/1: A Title, 2020",) if printed else ())
    return tabulated(suite, made, numbers)


def of_softmax(suite, record_of, **metrics: list[float]):
    """Records of softmax, one for each value of the metrics."""
    return [
        record_of(trial, **dict(zip(metrics, values, strict=True)))
        for trial, *values in zip(suite.trials, *metrics.values(), strict=False)
    ]


def test_a_single_seed_has_no_spread(suite_of, record_of):
    suite = suite_of(SUITE)
    row = cells(render(suite, of_softmax(suite, record_of, valid_ppl=[90.0], train_ms_per_batch=[2.25])))[0]
    assert (row["valid ppl"], row["train ms/batch"], row["n"]) == ("90.00", "2.2", "1/3: 2 not run")


def test_a_single_shared_seed_has_a_change_and_neither_interval_nor_p(suite_of, record_of):
    suite = suite_of(SUITE)
    made = [record_of(suite.trials[0], test_ppl=100.0), record_of(suite.trials[3], test_ppl=81.0)]
    row = cells(render(suite, made))[1]
    assert row["vs softmax"] == "-19.0 %"
    assert not {"p (Holm)", "p (signs)"} & row.keys()


def test_without_a_baseline_nothing_is_compared(suite_of, record_of):
    suite = suite_of(SUITE.replace("table: {baseline: softmax}\n", "table: {baseline: null}\n"))
    markdown = render(suite, of_softmax(suite, record_of, test_ppl=[80.0]))
    assert not [name for name in cells(markdown)[0] if name.startswith(("vs", "p (", "pairs"))]
    assert "vs " not in markdown


@pytest.mark.parametrize(
    ("boundary", "counting", "expected"),
    [("sos_eos", "sos_eos", "+2.00"), ("eos", "eos", "+2.00"), ("eos", "sos_eos", "-"), ("eos", "", "+2.00")],
)
def test_there_is_a_difference_only_where_both_count_alike(suite_of, record_of, boundary, counting, expected):
    suite = suite_of(PTB.replace("BOUNDARY", boundary))
    cell = printed_cell(corpus="ptb", backbone="transformer_encoder", counting=counting)
    row = cells(render(suite, of_softmax(suite, record_of, last_test_ppl=[97.0]), cell))[0]
    assert row["ours - printed test ppl"].partition(" ")[0] == expected
    assert row["printed test ppl"] == "95.0"


def test_a_printed_value_that_is_no_number_has_no_difference(suite_of, record_of):
    suite = suite_of(SUITE)
    row = cells(render(suite, of_softmax(suite, record_of, last_test_ppl=[90.0]), printed_cell(value="95.0*")))[0]
    assert row["printed test ppl"] == "95.0*"
    assert row["ours - printed test ppl"].startswith("-")


@pytest.mark.parametrize(
    ("override", "title", "file"),
    [
        ("train.epochs=1", "SHORTENED: train.epochs = 1 instead of 2", "suite.epochs=1"),
        ("train.epochs=9", "CHANGED: train.epochs = 9 instead of 2", "suite.epochs=9"),
        ("train.clip=0.25", "CHANGED: train.clip = 0.25", "suite.clip=0.25"),
    ],
)
def test_a_changed_suite_says_so_in_its_title_and_file_name(suite_of, override, title, file):
    suite = suite_of(SUITE, override)
    assert render(suite, []).splitlines()[0] == f"# suite, version 3; {title}"
    assert suite_table.stem(suite) == file


def test_a_file_name_has_no_path_in_it(suite_of):
    suite = replace(suite_of(SUITE, "train.epochs=1"), overrides=(("train.x", "../a/b", None),))
    assert re.fullmatch(r"suite\.x=\.\._a_b-[0-9a-f]{8}", suite_table.stem(suite))


@pytest.mark.parametrize(
    ("given", "name"),
    {
        "4": "suite.seeds=4",
        "[1, 2, 3, 4]": "suite.seeds=4",
        "[4,2]": "suite.seeds=4,2",
        "[ 7 ]": "suite.seeds=7",
    }.items(),
)
def test_a_file_with_other_seeds_has_the_name_that_a_person_would_choose(suite_of, given, name):
    assert suite_table.stem(suite_of(SUITE, f"seeds={given}")) == name


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["backbones.0.lstm.dropout=0.5"], ["heads.1.mos.dropout=0.5"]),
        (["seeds=[1, 2]"], ["seeds=[1,  2, 3]", "train.epochs=2"]),
        (["train.lr=1"], ["train.lr=10"]),
    ],
)
def test_different_changes_have_files_of_their_own(suite_of, first, second):
    assert suite_table.stem(suite_of(SUITE, *first)) != suite_table.stem(suite_of(SUITE, *second))


def test_the_same_records_give_the_same_text_in_any_order(suite_of, record_of):
    suite = suite_of(SUITE)
    made = [record_of(trial, test_ppl=50.0 + index) for index, trial in enumerate(suite.trials[:-1])]
    made.append(record_of(suite.trials[-1], "error", "RuntimeError: no"))
    assert render(suite, made) == render(suite, made[::-1])


def test_a_table_is_written_in_three_forms_and_not_again_while_it_is_the_same(suite_of, tmp_path):
    evidence = handmade.evidence(suite_of(SUITE), [])
    one, two = (Table(title=title, columns=(Column(name="head"),), lines=()) for title in ("one", "two"))
    places = suite_table.write(evidence.suite, one, tmp_path)
    assert [place.relative_to(tmp_path).as_posix() for place in places] == [
        "tables/suite.md",
        "tables/suite.csv",
        "tables/suite.tex",
    ]
    for place in places:
        os.utime(place, (1_000_000, 1_000_000))
    assert suite_table.write(evidence.suite, one, tmp_path) == places
    assert [place.stat().st_mtime for place in places] == [1_000_000] * 3
    suite_table.write(evidence.suite, two, tmp_path)
    assert places[0].read_text().startswith("# two\n")
    # a CSV has no title
    assert [place.stat().st_mtime == 1_000_000 for place in places] == [False, True, False]


def test_another_shape_than_the_suites_has_files_of_its_own(suite_of, tmp_path):
    found = findings(suite_of(SUITE.replace("{baseline", "{shape: heads, baseline"), "train.epochs=1"))
    table = suite_table.build(found)
    names = [suite_table.write(found.evidence.suite, table, tmp_path, shape)[0].name for shape in ("heads", "corpora")]
    assert names == ["suite.epochs=1.md", "suite.epochs=1.corpora.md"]


@pytest.mark.parametrize(
    ("decays", "said"),
    [
        ((0.02, 0.02), "Dynamic evaluation: lr 0.002, decay 0.02, epsilon 0.001, seq_len 5, batch_size 100."),
        ((0.02, 0.05), "Dynamic evaluation was done with several settings and does not compare: "),
    ],
    ids=["one", "several"],
)
def test_the_settings_of_dynamic_evaluation_are_said(suite_of, record_of, decays, said):
    suite = suite_of(SUITE)
    made = [
        record_of(trial, dynamic_test_ppl=8.0, **DynamicSpec(decay=decays[trial.head.name == "mos"]).as_metrics())
        for trial in suite.trials
    ]
    assert len(notes(tabulated(suite, made), said)) == 1


def test_conditions_say_that_there_was_a_second_stage(suite_of, record_of):
    suite = suite_of(SUITE, "train.finetune.epochs=4")
    made = of_softmax(suite, record_of, test_ppl=[80.0, 81.0, 82.0])
    first = counted(suite.trials[0].train.epochs, "epoch")
    assert f"; {first}; a second stage of at most 4 epochs; " in conditions(findings(suite, made))


@pytest.mark.parametrize("wrong", ["''", "two", "[1]", "'" + "9" * 5_000 + "'", "~", "'['"])
def test_a_mistake_of_the_file_that_the_command_line_mends_is_told_as_a_change(wrong, suite_of):
    suite = suite_of(SUITE.replace("epochs: 2", f"epochs: {wrong}"), "train.epochs=1")
    title = tabulated(suite).splitlines()[0]
    assert title.startswith("# suite, version 3; CHANGED: train.epochs = 1")


def test_notes_say_how_the_replicates_of_trials_agree(suite_of, record_of):
    suite = suite_of(handmade.SMALL)
    one, two, *_ = made = [record_of(trial, test_ppl=80.0) for trial in suite.trials]
    other = {"weights_sha256": "cd" * 32}
    rounded = record_of(two.spec, test_ppl=81.0).model_copy(update=other)  # 1.25 %: without a spread 5 % is allowed
    far = record_of(one.spec, test_ppl=95.0).model_copy(update=other)
    notes = notes_of(handmade.findings(suite, made, replicates={one.id: (one, far), two.id: (rounded,)}))
    (again,) = (note for note in notes if note.startswith("Trained again"))
    (apart,) = (note for note in notes if "further apart" in note)
    assert "1 time with the same bits, 1 time within 1.25 % of the test perplexity" in again
    assert (f"({one.id}): 80.00 on" in apart, "and 95.00 on" in apart, apart.level) == (True, True, "warning")


def test_notes_on_pretrained_models_stand_under_the_table_where_it_would_mislead_without(suite_of, record_of):
    suite = suite_of(handmade.suite_text())
    told = (PlanNote("mine: the files hold another output matrix"), PlanNote("mine: 3 rows more", in_table=False))
    suite = replace(suite, notes=told)
    made = [record_of(trial, test_ppl=100.0 + trial.seed) for trial in suite.trials]
    found = [note for note in notes_of(handmade.findings(suite, made)) if "mine" in note]
    assert [(str(note), note.level) for note in found] == [("mine: the files hold another output matrix.", "warning")]
