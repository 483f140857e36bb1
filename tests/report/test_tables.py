"""The markdown table: our numbers with their spread, beside the printed ones."""

import html
import os
import re

import pytest
from handmade import findings, tabulated

from harness.report import suite_table
from harness.report.content import Column, Table
from harness.report.printed_numbers import PrintedCell, PrintedNumbers
from harness.tracking.description import description

NONE = PrintedNumbers((), ())
SUITE = """\
name: suite
version: 3
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax, {mos: {num_mixtures: [2, 3]}}]
train: {optimizer: sgd, lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2, 3]
table: {baseline: softmax}
"""
PTB = """\
name: suite
version: 1
corpora: [{ptb: {boundary: BOUNDARY}}]
backbones: [transformer_encoder]
heads: [softmax, mos]
train: {optimizer: sgd, lr: 7, epochs: 2, batch_size: 20, seq_len: 35}
seeds: [1, 2]
"""


def cells(markdown: str) -> list[dict[str, str]]:
    """The table read back as a reader of markdown does: split at bars that no backslash escapes."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    header, rule, *body = [[unescaped(part.strip()) for part in _parts(line)] for line in lines]
    assert all(re.fullmatch(r":?-+:?", part) for part in rule)
    return [dict(zip(header, row, strict=True)) for row in body]


def unescaped(text: str) -> str:
    return html.unescape(re.sub(r"\\(.)", r"\1", text))


def _parts(line: str) -> list[str]:
    return re.findall(r"((?:[^|\\]|\\.)*)\|", line.removeprefix("|"))


def printed_cell(**changes) -> PrintedCell:
    values = {
        "corpus": "markov",
        "backbone": "lstm",
        "head": "softmax",
        "params": {},
        "metric": "test_ppl",
        "value": "95.0",
        "weights": "last",
        "counting": "",
        "note": "",
    }
    return PrintedCell(**{**values, **changes})


def render(suite, made, *printed: PrintedCell) -> str:
    numbers = PrintedNumbers(printed, ("paper/1: A Title, 2020",) if printed else ())
    return tabulated(suite, made, numbers)


def of_softmax(suite, record_of, **metrics: list[float]):
    """Records of softmax, one for each value of the metrics."""
    return [
        record_of(trial, **dict(zip(metrics, values, strict=True)))
        for trial, *values in zip(suite.trials, *metrics.values(), strict=False)
    ]


def test_mean_and_sample_standard_deviation_over_seeds(suite_of, record_of):
    suite = suite_of(SUITE)
    made = of_softmax(suite, record_of, valid_ppl=[90.0, 100.0, 110.0], test_ppl=[1.0, 2.0, 6.0])
    row = cells(render(suite, made))[0]
    # sample: sqrt((100 + 0 + 100) / 2) = 10, of the population 8.16; sqrt((4 + 1 + 9) / 2) = 2.6458
    assert (row["valid ppl"], row["test ppl"]) == ("100.00 ± 10.00", "3.00 ± 2.65")


def test_a_single_seed_has_no_spread(suite_of, record_of):
    suite = suite_of(SUITE)
    row = cells(render(suite, of_softmax(suite, record_of, valid_ppl=[90.0], train_ms_per_batch=[2.25])))[0]
    assert (row["valid ppl"], row["train ms/batch"], row["n"]) == ("90.00", "2.2", "1/3: 2 not run")


def test_a_row_without_records_is_shown_as_not_run(suite_of):
    found = cells(render(suite_of(SUITE), []))
    assert [row["head"] for row in found] == ["softmax", "MoS 2", "MoS 3"]
    for row in found:
        assert row["n"] == "0/3: 3 not run"
        assert {row[name] for name in ("valid ppl", "test ppl", "train ms/batch", "vs softmax")} == {"-"}


def test_a_failed_trial_is_counted_in_its_row_and_told_in_the_notes(suite_of, record_of):
    suite = suite_of(SUITE)
    made = of_softmax(suite, record_of, test_ppl=[80.0, 100.0])
    made.append(record_of(suite.trials[2], "diverged", "Diverged: training loss is nan in epoch 1"))
    markdown = render(suite, made)
    row = cells(markdown)[0]
    assert (row["n"], row["test ppl"]) == ("2/3: 1 diverged", "90.00 ± 14.14")  # 20 / sqrt(2)
    who = f"softmax lstm markov seed=3 ({suite.trials[2].id})"
    assert f"- {who}: diverged: Diverged: training loss is nan in epoch 1." in markdown.replace("1\n", "1.\n")


def test_an_invalid_trial_takes_its_row_out_of_the_ranking_and_is_told_in_the_notes(suite_of, record_of):
    suite = suite_of(SUITE)
    made = of_softmax(suite, record_of, test_ppl=[80.0, 100.0])
    made.append(record_of(suite.trials[2], "invalid", "the certificate failed", test_ppl=0.5))
    markdown = render(suite, made)
    row = cells(markdown)[0]
    assert (row["n"], row["test ppl"]) == ("2/3: 1 invalid", "-")
    assert f"({suite.trials[2].id}): invalid: the certificate failed" in markdown
    assert "- invalid: the certificate of a trial failed" in markdown


def test_the_change_against_the_baseline_is_of_mean_log_perplexity_over_shared_seeds(suite_of, record_of):
    suite = suite_of(SUITE)
    made = of_softmax(suite, record_of, test_ppl=[100.0, 110.0, 500.0])
    made += [record_of(trial, test_ppl=value) for trial, value in zip(suite.trials[3:5], (80.0, 99.0), strict=True)]
    made += [record_of(trial, test_ppl=235.0) for trial in suite.trials[6:9]]
    # mos 2, seeds 1 and 2: sqrt(0.8 * 0.9) = 0.8485; mos 3: the cube root of 235^3 / (100 * 110 * 500) = 1.3313
    found = cells(render(suite, made))
    assert [row["vs softmax"].partition(" [")[0] for row in found] == ["-", "-15.1 %", "+33.1 %"]
    assert [row["pairs"] for row in found] == ["-", "2", "3"]


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


def test_ours_after_the_last_epoch_is_compared_with_the_printed_value(suite_of, record_of):
    suite = suite_of(SUITE)
    made = of_softmax(suite, record_of, test_ppl=[70.0, 80.0], last_test_ppl=[90.0, 99.0])
    row = cells(render(suite, made, printed_cell(value="95.10")))[0]
    # last epoch: (90 + 99) / 2 = 94.5, sd 9 / sqrt(2) = 6.36; 94.5 - 95.1
    assert row["test ppl, last epoch"] == "94.50 ± 6.36"
    assert row["printed test ppl"] == "95.10"
    assert row["ours - printed test ppl"] == "-0.60"


def test_a_row_that_the_paper_does_not_have_stays_empty(suite_of, record_of):
    suite = suite_of(SUITE)
    row = cells(render(suite, of_softmax(suite, record_of, last_test_ppl=[90.0]), printed_cell()))[1]
    assert (row["printed test ppl"], row["ours - printed test ppl"]) == ("-", "-")


def test_a_paper_that_tested_its_best_weights_is_compared_with_our_best(suite_of, record_of):
    suite = suite_of(SUITE)
    made = of_softmax(suite, record_of, test_ppl=[70.0], last_test_ppl=[90.0])
    markdown = render(suite, made, printed_cell(weights="best", value="65.5"))
    assert cells(markdown)[0]["ours - printed test ppl"] == "+4.50"
    assert "last epoch" not in markdown


@pytest.mark.parametrize(
    ("boundary", "counting", "expected"),
    [("sos_eos", "sos_eos", "+2.00"), ("eos", "eos", "+2.00"), ("eos", "sos_eos", "-"), ("sos_eos", "eos", "-")],
)
def test_there_is_a_difference_only_where_both_count_alike(suite_of, record_of, boundary, counting, expected):
    suite = suite_of(PTB.replace("BOUNDARY", boundary))
    cell = printed_cell(corpus="ptb", backbone="transformer_encoder", counting=counting)
    row = cells(render(suite, of_softmax(suite, record_of, last_test_ppl=[97.0]), cell))[0]
    assert row["ours - printed test ppl"].partition(" ")[0] == expected
    assert row["printed test ppl"] == "95.0"


def test_standard_counting_has_a_column_only_where_sos_is_scored(suite_of, record_of):
    name = "test ppl, standard counting"
    suite = suite_of(PTB.replace("BOUNDARY", "sos_eos"))
    markdown = render(suite, of_softmax(suite, record_of, test_ppl=[93.0, 95.0], test_ppl_standard=[114.0, 116.0]))
    assert cells(markdown)[0][name] == "115.00 ± 1.41"
    suite = suite_of(PTB.replace("BOUNDARY", "eos"))
    assert name not in cells(render(suite, of_softmax(suite, record_of, test_ppl_standard=[114.0])))[0]


def test_printed_times_carry_their_device_and_are_never_subtracted(suite_of, record_of):
    suite = suite_of(SUITE)
    cell = printed_cell(metric="train_ms_per_batch", value="19.20", weights="", note="RTX 2080 Ti")
    row = cells(render(suite, of_softmax(suite, record_of, train_ms_per_batch=[2.5]), cell))[0]
    assert (row["train ms/batch"], row["printed ms/batch (RTX 2080 Ti)"]) == ("2.5", "19.20")
    assert not any(name.startswith("ours - ") for name in row)


@pytest.mark.parametrize("text", ["a|b", "a`b`", "a\\|b", "a\\", "<b>|`|"])
def test_a_cell_keeps_bars_backticks_and_backslashes(suite_of, text):
    found = cells(render(suite_of(SUITE), [], printed_cell(value=text)))
    assert [row["printed test ppl"] for row in found] == [text, "-", "-"]


def test_a_newline_in_a_cell_becomes_a_space(suite_of):
    found = cells(render(suite_of(SUITE), [], printed_cell(value="a\nb|c")))
    assert [row["printed test ppl"] for row in found] == ["a b|c", "-", "-"]


def test_a_bar_in_a_printed_device_does_not_break_the_header(suite_of):
    found = cells(render(suite_of(SUITE), [], printed_cell(metric="train_ms_per_batch", note="A|B")))
    assert found[0]["printed ms/batch (A|B)"] == "95.0"


def test_a_printed_value_that_is_no_number_has_no_difference(suite_of, record_of):
    suite = suite_of(SUITE)
    row = cells(render(suite, of_softmax(suite, record_of, last_test_ppl=[90.0]), printed_cell(value="95.0*")))[0]
    assert row["printed test ppl"] == "95.0*"
    assert row["ours - printed test ppl"].startswith("-")


def test_the_title_of_a_full_suite_is_its_name_and_version(suite_of):
    suite = suite_of(SUITE)
    assert render(suite, []).splitlines()[0] == "# suite, version 3"
    assert suite_table.stem(suite) == "suite"


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


@pytest.mark.parametrize(
    ("epochs", "override", "title"),
    [
        ("0.4", "0.1", "SHORTENED: train.epochs = 0.1 instead of 0.4"),
        ("0.4", "0.5", "CHANGED: train.epochs = 0.5 instead of 0.4"),
        ("2", "0.5", "SHORTENED: train.epochs = 0.5 instead of 2"),
        ("2.5", "1", "SHORTENED: train.epochs = 1 instead of 2.5"),
    ],
)
def test_a_part_of_an_epoch_less_is_told_as_shortened(suite_of, epochs, override, title):
    suite = suite_of(SUITE.replace("epochs: 2", f"epochs: {epochs}"), f"train.epochs={override}")
    assert render(suite, []).splitlines()[0] == f"# suite, version 3; {title}"
    assert suite_table.stem(suite) == f"suite.epochs={override}"


def test_a_file_name_has_no_path_in_it(suite_of):
    name = suite_table.stem(suite_of(SUITE, "seeds=[1, 2]", "train.epochs=1"))
    assert re.fullmatch(r"suite\.seeds=[0-9_]+\.epochs=1-[0-9a-f]{8}", name)


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
    suite = suite_of(SUITE)
    one, two = (Table(title=title, columns=(Column(name="head"),), lines=()) for title in ("one", "two"))
    places = suite_table.write(suite, one, tmp_path)
    assert [place.relative_to(tmp_path).as_posix() for place in places] == [
        "tables/suite.md",
        "tables/suite.csv",
        "tables/suite.tex",
    ]
    for place in places:
        os.utime(place, (1_000_000, 1_000_000))
    assert suite_table.write(suite, one, tmp_path) == places
    assert [place.stat().st_mtime for place in places] == [1_000_000] * 3
    suite_table.write(suite, two, tmp_path)
    assert places[0].read_text().startswith("# two\n")
    # a CSV has no title
    assert [place.stat().st_mtime == 1_000_000 for place in places] == [False, True, False]


def test_another_shape_than_the_suites_has_files_of_its_own(suite_of, tmp_path):
    suite = suite_of(SUITE.replace("{baseline", "{shape: heads, baseline"), "train.epochs=1")
    table = suite_table.build(findings(suite))
    assert suite_table.write(suite, table, tmp_path, "heads")[0].name == "suite.epochs=1.md"
    assert suite_table.write(suite, table, tmp_path, "corpora")[0].name == "suite.epochs=1.corpora.md"
    assert description("suite", tmp_path).count("### suite, version 3") == 2


def test_times_of_trials_that_shared_the_machine_are_marked(suite_of, record_of):
    suite = suite_of(SUITE)
    made = of_softmax(suite, record_of, train_ms_per_batch=[2.25])
    made.append(record_of(suite.trials[3], environment={"shared": True}, train_ms_per_batch=4.75))
    assert [row["train ms/batch"] for row in cells(render(suite, made))] == ["2.2", "4.8 ‡", "-"]
