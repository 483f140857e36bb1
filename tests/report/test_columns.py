"""Columns, marks, notes and files of tables that no planted suite (test_planted.py) shows."""

import math
import re
from dataclasses import replace

import bundles
import handmade
import numpy as np
import pytest
from handmade import cells, findings, notes, tabulated
from texts import lines

from harness.plan.model_notes import PlanNote
from harness.plan.suite_file import DynamicSpec
from harness.records import sidecars, store
from harness.records.sidecars import TokenScores
from harness.report import suite_table
from harness.report.columns import change
from harness.report.notes import conditions, notes_of
from harness.report.printed_numbers import PrintedNumbers
from harness.report.row_facts import head_counts, rows

HEADS = "[softmax, {mos: {num_mixtures: [2, 3]}}]"
SUITE = handmade.suite_text(version="3", heads=HEADS, seeds="[1, 2]", table="{baseline: softmax}")
PTB = SUITE.replace("markov: {vocab_size: 12, num_tokens: 400, branching: 3}", "ptb: {boundary: BOUNDARY}")
MANY = SUITE.replace("num_mixtures: [2, 3]", "num_mixtures: 2").replace("branching: 3", "branching: [2, 3]")
MANY = MANY.replace("num_layers: 1", "num_layers: [1, 2]")


def built(suite, made, **more):
    """Cells by header for each line, and the notes."""
    table = suite_table.build(findings(suite, made, **more))
    names = [column.header for column in table.columns]
    return [dict(zip(names, line.cells, strict=True)) for line in table.lines], table.notes


# printed numbers


@pytest.mark.parametrize(
    ("boundary", "about", "ours", "difference"),
    [
        ("eos", {"counting": "sos_eos"}, {"test_ppl": 97.0}, "- (counted by sos_eos)"),
        ("eos", {"value": "95.0*"}, {"test_ppl": 97.0}, "-"),  # no number
        ("eos", {"metric": "test_ppl_word", "value": "29.41"}, {"test_ppl_word": 30.0}, "+0.59"),
        ("eos", {"metric": "test_bits_per_character", "value": "1.17"}, {"test_bits_per_character": 0.8125}, "-0.357"),
    ],
)
def test_ours_less_what_is_printed_is_told_where_both_count_alike(
    suite_of, record_of, boundary, about, ours, difference
):
    suite = suite_of(PTB.replace("BOUNDARY", boundary))
    cell = handmade.printed_cell(corpus="ptb", **{"value": "95.0", **about})
    first, second, _ = cells(tabulated(suite, [record_of(suite.trials[0], **ours)], PrintedNumbers((cell,), ())))
    (name,) = (name for name in first if name.startswith("ours - printed"))
    assert (first[name], first[name.removeprefix("ours - ")], second[name]) == (difference, cell.value, "-")


def test_a_printed_inference_time_carries_its_device_and_is_not_subtracted(suite_of, record_of):
    suite = suite_of(SUITE)
    record = record_of(suite.trials[0], inference_batch=4, inference_ms_per_batch=2.0)
    cell = handmade.printed_cell(metric="inference_ms_per_batch", value="84", note="GPU not named")
    first = cells(tabulated(suite, [record], PrintedNumbers((cell,), ())))[0]
    assert first["printed inference ms/batch (GPU not named)"] == "84"
    assert not any(name.startswith("ours - ") for name in first)


# intervals


def test_an_interval_whose_ends_are_further_apart_than_by_a_factor_of_four_is_not_written_out():
    # e^0.69 = 1.994, e^-0.70 = 0.497, e^0.70 = 2.014; ln 4 = 1.386
    assert change(0.0, -0.69, 0.69).text == "+0.0 % [-49.8, +99.4]"
    found = change(0.0, -0.70, 0.70, "***")
    assert (found.text, found.interval) == ("+0.0 % [too wide] ***", pytest.approx((-50.3, 101.4), abs=0.05))
    assert change(-0.2107, None, None).text == "-19.0 %"
    assert change(1400.0, None, None).text == "+inf %"  # of a forged record


def test_a_single_seed_has_the_interval_over_blocks_which_ranks_nothing(suite_of, record_of, tmp_path):
    suite, made = suite_of(SUITE.replace("[1, 2]", "[1]")), []
    # test tokens that cost these nats, 1,000 each
    for trial, costs in zip(suite.trials, ([4.0] * 20, [3.75] * 20, [3.75, 3.25] * 10), strict=True):
        nll = np.repeat(np.array(costs, dtype=np.float32), 1_000)
        of_text = {"test_ppl": math.exp(nll.astype(np.float64).mean()), "scored_test_tokens": float(len(nll))}
        record = record_of(trial, **of_text).model_copy(update={"weights_sha256": "0" * 64})
        counts = np.zeros(len(nll), dtype=np.int32)
        place = store.folder(tmp_path, trial.id) / sidecars.TOKEN_NLL.file
        place.parent.mkdir(parents=True)
        sidecars.save_token_scores(TokenScores(nll=nll, count=counts, offset=counts), record.weights_sha256, place)
        made.append(record)
    shown, said = built(suite, made, runs=tmp_path)
    # e^-0.25 - 1 = -22.1 %, the same for every block
    assert (shown[1]["vs softmax"].text, shown[1]["vs softmax"].mark) == ("-22.1 % [-22.1, -22.1]", "")
    # blocks of -0.25 and -0.75: the mean of 20 drawn is -0.25 - 0.5 X / 20, X binomial, from 6 to 14
    assert shown[2]["vs softmax"].interval == pytest.approx((100 * math.expm1(-0.6), 100 * math.expm1(-0.4)))
    assert [(line["verdict"].text, line["test ppl"].rank) for line in shown[1:]] == [("too few seeds", "")] * 2
    assert any(note.startswith("One seed: a 95 % interval over blocks of the test text") for note in said)


# notes


def test_without_a_baseline_times_with_other_threads_are_marked_against_the_first(suite_of, record_of):
    suite = suite_of(SUITE.replace("[1, 2]", "[1]").replace("baseline: softmax", "baseline: null"))
    made = [record_of(trial, train_ms_per_batch=10.0) for trial in suite.trials]
    made = [each.model_copy(update={"weights_sha256": "w"}) for each in made]
    for threads, marks in (((2, 2, 2), ["", "", ""]), ((4, 4, 1), ["", "", "‡"])):
        timings = {each.id: bundles.timing_of(each, threads=n) for each, n in zip(made, threads, strict=True)}
        shown, said = built(suite, made, timings=timings)
        assert [line["train ms/batch"].mark for line in shown] == marks
        assert any("threads do not compare: with 1 thread: MoS 3; with 4" in note for note in said) == ("‡" in marks)


def test_a_text_with_unknown_test_tokens_has_no_bits_per_byte_which_is_said_where_they_are_no_words(
    suite_of, record_of, tmp_path
):
    (tmp_path / "novel.txt").write_text(lines(40, seed=1))
    for level, said in (("char", ["No bits per byte: some test tokens are unknown."]), ("word", [])):
        text = f"text: {{path: {tmp_path}/novel.txt, level: {level}}}"
        suite = suite_of(SUITE.replace("markov: {vocab_size: 12, num_tokens: 400, branching: 3}", text))
        (note,) = notes(tabulated(suite, [record_of(suite.trials[0], test_unknown_share=0.001)]), "Counting")
        assert re.findall("No bits per byte.*", note) == said


def test_a_record_that_its_token_scores_contradict_counts_as_one_without(tmp_path, harness):
    trials, table = bundles.planned(tmp_path), ("table", tmp_path / "suite.yaml", "--wide", "--results", tmp_path / "r")
    for spec in trials:
        bundles.keep(tmp_path / "r", bundles.record_of(spec), timed=False)
    runs = tmp_path / "r" / "runs" / "small"
    record = store.load(runs, trials[1].id)
    store.save(record.model_copy(update={"metrics": {**record.metrics, "test_ppl": 1.5}}), runs)
    done = harness(*table)
    assert "the scores do not add up to the record's test perplexity" in done.err
    assert f"- No token scores: 1 of 4 ok trials ({trials[1].id})" in done.out
    assert "oken scores" not in harness(*table, "--set", "measure.token_nll=false").out


@pytest.mark.parametrize(
    ("decays", "said"),
    [
        ((0.02, 0.02), "Dynamic evaluation: lr 0.002, decay 0.02, epsilon 0.001, seq_len 5, batch_size 100."),
        ((0.02, 0.05), "Dynamic evaluation was done with several settings and does not compare: "),
    ],
)
def test_settings_of_dynamic_evaluation_and_a_second_stage_are_said(suite_of, record_of, decays, said):
    suite, made = suite_of(SUITE, "train.finetune.epochs=4"), []
    for trial in suite.trials:
        settings = DynamicSpec(decay=decays[trial.head.name == "mos"]).as_metrics()
        made.append(record_of(trial, dynamic_test_ppl=8.0, **settings))
    assert len(notes(tabulated(suite, made), said)) == 1
    assert "; 2 epochs; a second stage of at most 4 epochs; " in conditions(findings(suite, made))


def test_notes_say_how_the_replicates_of_trials_agree(suite_of, record_of):
    suite = suite_of(handmade.SMALL)
    one, two, *_ = made = [record_of(trial, test_ppl=80.0) for trial in suite.trials]
    other = {"weights_sha256": "cd" * 32}
    rounded = record_of(two.spec, test_ppl=81.0).model_copy(update=other)  # 1.25 %: without a spread 5 % is allowed
    far = record_of(one.spec, test_ppl=95.0).model_copy(update=other)
    said = notes_of(findings(suite, made, replicates={one.id: (one, far), two.id: (rounded,)}))
    (again,) = (note for note in said if note.startswith("Trained again"))
    (apart,) = (note for note in said if "further apart" in note)
    assert "1 time with the same bits, 1 time within 1.25 % of the test perplexity" in again
    assert (f"({one.id}): 80.00 on" in apart, "and 95.00 on" in apart, apart.level) == (True, True, "warning")


def test_notes_on_pretrained_models_stand_under_the_table_where_it_would_mislead_without(suite_of, record_of):
    told = (PlanNote("mine: the files hold another output matrix"), PlanNote("mine: 3 rows more", in_table=False))
    suite = replace(suite_of(SUITE), notes=told)
    found = [note for note in notes_of(findings(suite, [record_of(suite.trials[0])])) if "mine" in note]
    assert [(str(note), note.level) for note in found] == [("mine: the files hold another output matrix.", "warning")]


# shapes


def by_place(suite, record_of):
    """One record a row, of the first seed: its metric is 100 times the corpus, 10 times the backbone, the head."""
    values = [float(100 * (1 + n // 4) + 10 * (1 + n // 2 % 2) + 1 + n % 2) for n in range(8)]
    return [record_of(trial, test_ppl=value) for trial, value in zip(suite.trials[::2], values, strict=True)]


@pytest.mark.parametrize("place", [1, 5])  # a row of the first corpus, of the second
def test_heads_has_an_empty_cell_for_a_row_that_is_not_there_yet(suite_of, record_of, place):
    """As of a head that has no point of the tuning on one corpus."""
    suite = suite_of(MANY)
    found = findings(suite, by_place(suite, record_of))
    table = suite_table.build(replace(found, rows=[row for at, row in enumerate(found.rows) if at != place]), "heads")
    columns = [at for at, column in enumerate(table.columns) if column.key == "test_ppl"]
    expected = [("111.00", "211.00"), ("112.00", "212.00"), ("121.00", "221.00"), ("122.00", "222.00")]
    expected[1] = {1: ("-", "212.00"), 5: ("112.00", "-")}[place]
    shown = [tuple(line.cells[at].text.split()[0] for at in columns) for line in table.lines]
    assert sorted(shown) == sorted(expected)


@pytest.mark.parametrize("shape", ["mixtures", "heads", "corpora"])
def test_every_line_names_its_trials_by_which_it_is_chosen(suite_of, record_of, shape):
    suite = suite_of(MANY)
    table = suite_table.build(findings(suite, by_place(suite, record_of)), shape)
    named = [set(line.trials) for line in table.lines]
    assert set.union(*named) == {trial.id for trial in suite.trials}
    assert {len(trials) for trials in named} == {{"mixtures": 2, "heads": 4, "corpora": 4}[shape]}
    some = suite_table.of_trials(table, {suite.trials[7].id})
    assert list(some.lines) == [line for line in table.lines if suite.trials[7].id in line.trials]
    assert (some.columns, some.notes) == (table.columns, table.notes)


@pytest.mark.parametrize("shape", ["heads", "corpora"])
def test_a_long_label_of_a_corpus_is_told_once_and_named_by_a_number(suite_of, shape):
    text = SUITE.replace("vocab_size: 12, num_tokens: 400", "vocab_size: [12, 13], num_tokens: [400, 800]")
    table = suite_table.build(findings(suite_of(text)), shape)
    first = {column.group for column in table.columns} | {line.cells[0].text for line in table.lines}
    assert {f"markov {number}" for number in (1, 2, 3, 4)} <= first
    assert "markov 2: markov, vocab_size 12, num_tokens 800." in table.notes


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("doc: {components: {top: 2, second: 1}}", (3, None, None)),
        ("doc: {components: [3, 0]}", (3, None, None)),
        ("mfs: {num_mixtures: 1, num_input_layers: 1, window: 0, num_partitions: 4}", (1, 1, 4)),
        ("mfs: {num_input_layers: 2, window: 2, num_partitions: 1}", (3, 6, 1)),
    ],
)
def test_counts_of_a_head_are_read_off_its_parameters(suite_of, head, expected):
    text = handmade.suite_text(backbones="[{lstm: {d_model: 8, num_layers: 2}}]", heads=f"\n  - {head}")
    assert head_counts(rows(suite_of(text), {})[0]) == dict(zip(("#S", "#I", "#P"), expected, strict=True))


# files


@pytest.mark.parametrize(
    ("overrides", "title", "file"),
    [
        (["train.epochs=9"], "CHANGED: train.epochs = 9 instead of 2", "suite.epochs=9"),
        (["seeds=[1, 2, 3, 4]"], "CHANGED: seeds = 4 instead of 2", "suite.seeds=4"),
        (["seeds=[4,2]"], "CHANGED: seeds = [4,2] instead of 2", "suite.seeds=4,2"),
        (["heads+=mos"], "ADDED to heads: mos", None),
    ],
)
def test_a_changed_suite_says_so_in_its_title_and_file_name(suite_of, overrides, title, file):
    suite = suite_of(SUITE, *overrides)
    assert suite_table.title(suite).startswith(f"suite, version 3; {title}")
    assert suite_table.stem(suite) == (file or suite_table.stem(suite))
    outside = replace(suite, overrides=(("train.x", "../a/b", None),))  # a file name has no path in it
    assert re.fullmatch(r"suite\.x=\.\._a_b-[0-9a-f]{8}", suite_table.stem(outside))


def test_hostile_text_of_a_change_is_text_in_the_title(suite_of):
    suite = suite_of(SUITE, "train.lr=2 # <script>|`x`\x0b[a](b)".replace("\x0b", ""))
    title = tabulated(suite).splitlines()[0]
    assert title.startswith("# suite, version 3; CHANGED: train.lr = 2 \\# &lt;script>\\|\\`x\\`[a]\\(b) instead of ")


def test_a_mistake_of_the_file_that_the_command_line_mends_is_told_as_a_change(suite_of):
    for wrong in ("''", "two", "[1]", "'" + "9" * 5_000 + "'", "~", "'['"):
        suite = suite_of(SUITE.replace("epochs: 2", f"epochs: {wrong}"), "train.epochs=1")
        title = tabulated(suite).splitlines()[0]
        assert title.startswith("# suite, version 3; CHANGED: train.epochs = 1")
