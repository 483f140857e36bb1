"""The markdown table: our numbers with their spread, beside the printed ones."""

import html
import os
import re

import pytest

from harness.report import published, tables
from harness.report.published import PrintedCell, PrintedNumbers

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
    return tables.render(suite, {record.id: record for record in made}, numbers)


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
    assert [row["head"] for row in found] == ["softmax", "mos(num_mixtures=2)", "mos(num_mixtures=3)"]
    for row in found:
        assert row["n"] == "0/3: 3 not run"
        assert {row[name] for name in ("valid ppl", "test ppl", "train ms/batch", "reduction vs softmax")} == {"-"}


def test_a_failed_trial_is_counted_in_its_row_and_told_in_the_notes(suite_of, record_of):
    suite = suite_of(SUITE)
    made = of_softmax(suite, record_of, test_ppl=[80.0, 100.0])
    made.append(record_of(suite.trials[2], "diverged", "Diverged: training loss is nan in epoch 1"))
    markdown = render(suite, made)
    row = cells(markdown)[0]
    assert (row["n"], row["test ppl"]) == ("2/3: 1 diverged", "90.00 ± 14.14")  # 20 / sqrt(2)
    who = f"softmax lstm markov seed=3 ({suite.trials[2].id})"
    assert f"- {who}: diverged: Diverged: training loss is nan in epoch 1." in markdown.replace("1\n", "1.\n")


def test_reduction_is_in_percent_of_the_baseline_over_shared_seeds(suite_of, record_of):
    suite = suite_of(SUITE)
    made = of_softmax(suite, record_of, test_ppl=[100.0, 110.0, 500.0])
    made += [record_of(trial, test_ppl=value) for trial, value in zip(suite.trials[3:5], (80.0, 99.0), strict=True)]
    made += [record_of(trial, test_ppl=235.0) for trial in suite.trials[6:9]]
    # mos 2, seeds 1 and 2: (105 - 89.5) / 105 = 14.76 %; mos 3: mean 236.67 against 235, 0.70 %
    assert [row["reduction vs softmax"] for row in cells(render(suite, made))] == ["-", "14.8 %", "0.7 %"]


def test_without_a_baseline_there_is_no_reduction(suite_of):
    markdown = render(suite_of(SUITE.replace("table: {baseline: softmax}\n", "")), [])
    assert "eduction" not in markdown


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
    assert "divided by words and &lt;eos> only" in markdown
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
    assert tables.file_name(suite) == "suite.md"


@pytest.mark.parametrize(
    ("override", "title", "file"),
    [
        ("train.epochs=1", "SHORTENED: train.epochs = 1 instead of 2", "suite.epochs=1.md"),
        ("train.epochs=9", "CHANGED: train.epochs = 9 instead of 2", "suite.epochs=9.md"),
        ("train.clip=0.25", "CHANGED: train.clip = 0.25", "suite.clip=0.25.md"),
    ],
)
def test_a_changed_suite_says_so_in_its_title_and_file_name(suite_of, override, title, file):
    suite = suite_of(SUITE, override)
    assert render(suite, []).splitlines()[0] == f"# suite, version 3; {title}"
    assert tables.file_name(suite) == file


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
    assert tables.file_name(suite) == f"suite.epochs={override}.md"


def test_a_file_name_has_no_path_in_it(suite_of):
    name = tables.file_name(suite_of(SUITE, "seeds=[1, 2]", "train.epochs=1"))
    assert re.fullmatch(r"suite\.seeds=[0-9_]+\.epochs=1-[0-9a-f]{8}\.md", name)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["backbones.0.lstm.dropout=0.5"], ["heads.1.mos.dropout=0.5"]),
        (["seeds=[1, 2]"], ["seeds=[1,  2, 3]", "train.epochs=2"]),
        (["train.lr=1"], ["train.lr=10"]),
    ],
)
def test_different_changes_have_files_of_their_own(suite_of, first, second):
    assert tables.file_name(suite_of(SUITE, *first)) != tables.file_name(suite_of(SUITE, *second))


def test_the_same_records_give_the_same_text_in_any_order(suite_of, record_of):
    suite = suite_of(SUITE)
    made = [record_of(trial, test_ppl=50.0 + index) for index, trial in enumerate(suite.trials[:-1])]
    made.append(record_of(suite.trials[-1], "error", "RuntimeError: no"))
    assert render(suite, made) == render(suite, made[::-1])


def test_an_unchanged_table_is_not_written_again(suite_of, tmp_path):
    suite = suite_of(SUITE)
    place = tables.write(suite, "one\n", tmp_path)
    assert place == tmp_path / "tables" / "suite.md"
    os.utime(place, (1_000_000, 1_000_000))
    assert tables.write(suite, "one\n", tmp_path) == place
    assert place.stat().st_mtime == 1_000_000
    tables.write(suite, "two\n", tmp_path)
    assert place.read_text() == "two\n"
    assert place.stat().st_mtime != 1_000_000


def test_times_of_trials_that_shared_the_machine_are_marked(suite_of, record_of):
    suite = suite_of(SUITE)
    alone, shared = (record_of(suite.trials[0], environment={"shared": flag}) for flag in (False, True))
    assert "shared the machine" not in render(suite, [alone])
    assert "shared the machine" in render(suite, [shared])


GOLDEN = """\
# suite, version 3

| head                | params   | head params   | valid ppl      | test ppl      | reduction vs softmax   | train ms/batch   | eval ms/batch   | test ppl, last epoch   | printed test ppl   | ours - printed test ppl   | printed ms/batch (GPU X)   | n               |
|:--------------------|:---------|:--------------|:---------------|:--------------|:-----------------------|:-----------------|:----------------|:-----------------------|:-------------------|:--------------------------|:---------------------------|:----------------|
| softmax             | 780      | 108           | 100.00 ± 14.14 | 90.00 ± 14.14 | -                      | 2.5 ± 0.7        | 1.5 ± 0.0       | 100.00 ± 5.66          | 95.00              | +5.00                     | 19.20                      | 2/2             |
| mos(num_mixtures=2) | 940      | 268           | 85.00          | 81.00         | 19.0 %                 | 4.0              | -               | 82.25                  | 80.5               | +1.75                     | -                          | 1/2: 1 diverged |
| mos(num_mixtures=3) | 1,020    | 348           | -              | -             | -                      | -                | -               | -                      | -                  | -                         | -                          | 0/2: 2 not run  |

- Training: optimizer sgd, lr 0.5, epochs 2, batch_size 4, seq_len 7; seeds 1, 2.
- Backbone: lstm(d_model=8, num_layers=1).
- valid ppl and test ppl are of the best epoch by validation; ± is the standard deviation over seeds; n counts ok trials of planned ones.
- Counting, markov(vocab_size=12, num_tokens=400, branching=3): symbols of a Markov chain; every token but a split's first is scored.
- Reduction: (softmax - head) / softmax, of mean test ppl over shared seeds.
- Unigram test ppl, markov(vocab_size=12, num_tokens=400, branching=3): 11.00.
- Test ppl under the process that made the text, markov(vocab_size=12, num_tokens=400, branching=3): 2.33.
- Context, lstm: segments of 7 tokens, state carried from segment to segment.
- Measured on a processor, 1 thread(s) a trial, torch 2.13.0, Python 3.11.7, harness 0.1.0 at abc, executor inline.
- Printed, paper/1: A Title, 2020.
- ours - printed: of the weights after the last epoch, which are those the paper tested.
- mos(num_mixtures=2) lstm markov seed=2 (DIVERGED_ID): diverged: Diverged: training loss is nan in epoch 1
- Last trial finished 2026-01-02T04:00:00+00:00.
"""  # noqa: E501


def test_a_whole_table(suite_of, record_of, tmp_path):
    # Spreads of two seeds are their distance over sqrt(2): 20 -> 14.14, 1 -> 0.71, 8 -> 5.66. Reduction of mos over the
    # shared seed 1: (100 - 81) / 100. Differences: (104 + 96) / 2 - 95.00, 82.25 - 80.5.
    # d = 8, V = 12: embedding 96 and LSTM 4 * 2 * 64 + 64 = 576; softmax 96 + 12; mos K: 8 * 8K + 8K, prior 8K, + 108.
    folder = tmp_path / "results" / "published"
    folder.mkdir(parents=True)
    (folder / "sources.csv").write_text("paper,title,year,identifier,read_in\npaper,A Title,2020,id,paper\n")
    (folder / "paper.csv").write_text(
        "table,corpus,backbone,head,params,metric,value,weights,counting,note\n"
        "1,markov,lstm,softmax,,test_ppl,95.00,last,,\n"
        "1,markov,lstm,mos,num_mixtures=2,test_ppl,80.5,last,,\n"
        "1,markov,lstm,softmax,,train_ms_per_batch,19.20,,,GPU X\n"
    )
    text = SUITE.replace("seeds: [1, 2, 3]", "seeds: [1, 2]").replace("{baseline", "{compare: paper/1, baseline")
    suite = suite_of(text)
    first, second, third, fourth = suite.trials[:4]
    source = {"source_test_ppl": 2.33}
    made = [
        record_of(
            first, valid_ppl=110, test_ppl=100, last_test_ppl=104, train_ms_per_batch=2, eval_ms_per_batch=1.5, **source
        ),
        record_of(
            second, valid_ppl=90, test_ppl=80, last_test_ppl=96, train_ms_per_batch=3, eval_ms_per_batch=1.5, **source
        ),
        record_of(third, valid_ppl=85, test_ppl=81, last_test_ppl=82.25, train_ms_per_batch=4, **source),
        record_of(
            fourth,
            "diverged",
            "Diverged: training loss is nan in epoch 1",
            environment={"finished": "2026-01-02T04:00:00+00:00"},
        ),
    ]
    markdown = tables.render(suite, {record.id: record for record in made}, published.load(suite))
    assert markdown == GOLDEN.replace("DIVERGED_ID", fourth.id)
