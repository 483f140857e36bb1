"""Columns and notes that a table has only where a trial was measured so, kept its scores, or somebody chose seeds."""

import bundles
import handmade
import pytest
from handmade import cells, notes, tabulated
from texts import lines

from harness.records import store
from harness.report import suite_table
from harness.report.layouts import select
from harness.report.printed_numbers import PrintedNumbers

SUITE = handmade.suite_text(
    version="3",
    heads="[softmax, mos]",
    train="{optimizer: sgd, lr: 0.5, epochs: 0.4, batch_size: 4, seq_len: 7}",
    seeds="[1, 2]",
)
TEXT = {"test_ppl_word": 30.0, "test_ppl_byte": 1.75, "test_bits_per_byte": 0.8074, "test_bits_per_character": 0.8125}


def render(suite, *made, printed=()):
    numbers = PrintedNumbers(printed, ("paper/1: A Title, 2020",) if printed else ())
    return tabulated(suite, made, numbers)


def printed_cell(metric, value, note="", counting=""):
    return handmade.printed_cell(metric=metric, value=value, note=note, counting=counting)


NEW = [
    "valid ppl before training",
    "test ppl/word",
    "test ppl/byte",
    "bits/byte",
    "bits/char",
    "inference ms/batch (b=4)",
]


def test_columns_are_there_only_where_some_row_has_the_metric(suite_of, record_of):
    suite = suite_of(SUITE)
    plain = render(suite, record_of(suite.trials[0], test_ppl=10.0))
    assert not {*NEW} & {*cells(plain)[0]}
    assert "before training" not in plain
    assert "inference" not in plain
    assert "bits/char" not in plain
    measured = {"start_valid_ppl": 20.0, "inference_ms_per_batch": 3.25, "inference_batch": 4.0, **TEXT}
    markdown = render(suite, record_of(suite.trials[0], test_ppl=10.0, **measured))
    first, second = cells(markdown)
    assert [first[name] for name in NEW] == ["20.00", "30.00", "1.750", "0.8074", "0.812", "3.2"]
    assert {second[name] for name in NEW} == {"-"}
    assert [name for name in first if name in [*NEW, "valid ppl", "test ppl", "eval ms/batch"]] == [
        *["valid ppl before training", "valid ppl", "test ppl", "test ppl/word", "test ppl/byte", "bits/byte"],
        *["bits/char", "eval ms/batch", "inference ms/batch (b=4)"],
    ]


KNOWN = ["test ppl, known words", "unknown test tokens", "vs softmax, known words"]


@pytest.mark.parametrize(("share", "noted"), [(0.0101, True), (0.01, False)])
def test_unknown_words_have_columns_in_the_wide_table_and_a_note_above_one_percent(share, noted, suite_of, record_of):
    suite = suite_of(f"{SUITE}table: {{baseline: softmax}}\n")
    ppl = {"softmax": (20.0, 10.0), "mos": (19.0, 8.0)}
    made = [
        record_of(trial, test_ppl=all_words, test_ppl_known=known, test_unknown_share=share)
        for trial in suite.trials
        for all_words, known in [ppl[trial.head.name]]
    ]
    wide = render(suite, *made)
    first, second = cells(wide)
    assert [first[name] for name in KNOWN] == ["10.00 ± 0.00", f"{share:.4f} ± 0.0000", "-"]
    assert second[KNOWN[2]].startswith("-20.0 %")  # 8 / 10 - 1; of all words 19 / 20 - 1
    assert second["vs softmax"].startswith("-5.0 %")
    assert [name for name in first if name.startswith("vs")] == ["vs softmax", KNOWN[2]]
    table = select(suite_table.build(handmade.findings(suite, made)))
    assert not {*KNOWN} & {column.name for column in table.columns}
    begin = "1.0 % of the test tokens of markov are unknown: one token for all that the vocabulary does not have"
    assert bool(notes(suite_table.text(table), begin)) == noted == bool(notes(wide, begin))
    plain = render(suite, *(record_of(trial, test_ppl=20.0) for trial in suite.trials))
    assert not {*KNOWN} & {*cells(plain)[0]}


def test_printed_words_and_characters_are_set_beside_ours(suite_of, record_of):
    suite = suite_of(SUITE)
    made = [record_of(trial, **TEXT) for trial in suite.trials[:2]]
    printed = printed_cell("test_ppl_word", "29.41"), printed_cell("test_bits_per_character", "1.17")
    first, second = cells(render(suite, *made, printed=printed))
    assert (first["printed test ppl/word"], first["ours - printed test ppl/word"]) == ("29.41", "+0.59")
    assert (first["printed bits/char"], first["ours - printed bits/char"]) == ("1.17", "-0.357")  # 0.8125 - 1.17
    assert second["ours - printed test ppl/word"] == "-"
    assert "printed test ppl" not in first


def test_a_printed_number_without_a_boundary_rule_is_compared_whatever_ours_is(suite_of, record_of):
    # words of the original text: PTB's have no boundary token to count or not
    text = SUITE.replace("markov: {vocab_size: 12, num_tokens: 400, branching: 3}", "ptb: {boundary: eos}")
    suite = suite_of(text)
    cell = handmade.printed_cell(corpus="ptb", metric="test_ppl_word", value="29.41")
    first = cells(render(suite, record_of(suite.trials[0], **TEXT), printed=(cell,)))[0]
    assert first["ours - printed test ppl/word"] == "+0.59"


def test_a_printed_inference_time_carries_its_device_and_is_not_subtracted(suite_of, record_of):
    suite = suite_of(SUITE)
    record = record_of(suite.trials[0], inference_batch=4, inference_ms_per_batch=2.0)
    first = cells(render(suite, record, printed=(printed_cell("inference_ms_per_batch", "84", "GPU not named"),)))[0]
    assert first["printed inference ms/batch (GPU not named)"] == "84"
    assert not any(name.startswith("ours - ") for name in first)


@pytest.mark.parametrize(
    ("settings", "counted", "context"),
    [
        ("", "every token except the first of a split is scored.", "segments of 7 tokens, no state carried over."),
        (
            ", eval_batches: 9",
            "every token except the first of a split is scored, of the first 9 batches of a split.",
            "segments of 7 tokens, no state carried over.",
        ),
        (
            ", batching: blocks, eval_batches: 9",
            "every token except the first of a block is scored, of the first 9 batches of a split.",
            "blocks of 7 tokens that do not overlap, no state carried over.",
        ),
        (
            ", eval_stride: 3",
            "every token except the first of a split is scored.",
            "windows of 7 tokens that move by 3 and score their last 3; in training, segments of 7 tokens, no state "
            "carried over.",
        ),
    ],
)
def test_notes_say_what_is_scored_after_which_context(suite_of, record_of, settings, counted, context):
    suite = suite_of(SUITE.replace("seq_len: 7", f"seq_len: 7{settings}"))
    markdown = render(suite, record_of(suite.trials[0], state_carried=0))
    rule = "Counting, markov(vocab_size=12, num_tokens=400, branching=3): symbols of a Markov chain"
    assert notes(markdown, "Counting") == [f"{rule}; {counted} Test ppl of a unigram model: 1100.00."]
    assert notes(markdown, "Backbone") == [f"Backbone: lstm(d_model=8, num_layers=1). Context: {context}"]
    (training,) = notes(markdown, "Training")
    assert "epochs 0.4" in training


def test_a_table_of_trials_that_had_nothing_to_train_on_has_no_unigram(suite_of, record_of):
    suite = suite_of(SUITE)
    record = record_of(suite.trials[0])
    with_unigram = render(suite, record)
    metrics = {name: value for name, value in record.metrics.items() if name != "unigram_test_ppl"}
    without = render(suite, record.model_copy(update={"metrics": metrics}))
    assert ("unigram" in with_unigram, "unigram" in without) == (True, False)


def test_notes_name_a_text_but_not_its_place(suite_of, record_of, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "novel.txt").write_text(lines(40, seed=1))
    path = f"{{text: {{path: {tmp_path}/mine/novel.txt}}}}"
    suite = suite_of(SUITE.replace("{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}", path))
    markdown = render(suite, record_of(suite.trials[0], test_ppl=10.0))
    assert str(tmp_path) not in markdown
    assert notes(markdown, "Counting")[0].startswith("Counting, text(path=novel.txt): ")
    assert notes(markdown, "Counting")[0].endswith("Test ppl of a unigram model: 1100.00.")


@pytest.mark.parametrize(
    ("params", "metrics", "why"),
    [
        ("tokenizer: {wordpiece: 60}", {}, "its tokens do not give back every byte of the text"),
        ("tokenizer: {wordpiece: 60}", {"test_unknown_share": 0.001}, "some test tokens are unknown"),
        ("level: char", {"test_unknown_share": 0.001}, "some test tokens are unknown"),
        ("tokenizer: {bpe: 300}", TEXT, None),
        ("level: word", {"test_unknown_share": 0.001}, None),
    ],
)
def test_why_a_text_has_no_bits_per_byte_is_said(suite_of, record_of, tmp_path, params, metrics, why):
    (tmp_path / "novel.txt").write_text(lines(40, seed=1))
    text = f"{{text: {{path: {tmp_path}/novel.txt, {params}}}}}"
    suite = suite_of(SUITE.replace("{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}", text))
    (note,) = notes(render(suite, record_of(suite.trials[0], test_ppl=10.0, **metrics)), "Counting")
    assert note.endswith(f" No bits per byte: {why}.") if why else "bits per byte" not in note


@pytest.mark.system
@pytest.mark.guards("unscored-named")
def test_trials_without_token_scores_are_named(tmp_path, harness):
    trials = bundles.planned(tmp_path)
    for number, spec in enumerate(trials):
        bundles.keep(tmp_path / "results", bundles.record_of(spec), timed=False, scored=number != 1)
    done = harness("table", tmp_path / "suite.yaml", "--wide", "--results", tmp_path / "results")
    why = "test_nll.npz is missing or does not fit the record."
    assert f"- No token scores: 1 of 4 ok trials ({trials[1].id}): {why}\n" in done.out
    assert harness("report", tmp_path / "suite.yaml", "--results", tmp_path / "results").code == 0
    page = (tmp_path / "results" / "reports" / "small.html").read_text(encoding="utf-8")
    assert (
        '<th scope="row">token scores</th><td class="number">kept</td><td class="number">no token scores</td>' in page
    )
    assert page.count('<th scope="row">token scores</th>') == 1
    off = ("--set", "measure.token_nll=false")
    assert (
        "oken scores"
        not in harness("table", tmp_path / "suite.yaml", "--wide", "--results", tmp_path / "results", *off).out
    )


def test_a_record_that_its_token_scores_contradict_counts_as_one_without(tmp_path, harness):
    trials = bundles.planned(tmp_path)
    for spec in trials:
        bundles.keep(tmp_path / "results", bundles.record_of(spec), timed=False)
    runs = tmp_path / "results" / "runs" / "small"
    record = store.load(runs, trials[1].id)
    store.save(record.model_copy(update={"metrics": {**record.metrics, "test_ppl": 1.5}}), runs)
    done = harness("table", tmp_path / "suite.yaml", "--wide", "--results", tmp_path / "results")
    assert "the scores do not add up to the record's test perplexity" in done.err
    assert f"- No token scores: 1 of 4 ok trials ({trials[1].id})" in done.out


@pytest.mark.guards("chosen-seeds")
@pytest.mark.parametrize(("seeds", "said"), [("[1, 2, 3]", False), ("[7, 8]", False), ("[1, 2, 4]", True)])
def test_seeds_that_leave_some_out_are_named(suite_of, seeds, said):
    suite = suite_of(handmade.suite_text(seeds=seeds))
    made = [bundles.record_of(spec) for spec in suite.trials]
    expected = [f"The seeds are {seeds[1:-1]}, not consecutive numbers: say how they were chosen."]
    assert notes(tabulated(suite, made), "The seeds") == (expected if said else [])


def test_certificates_of_earlier_rules_are_a_mark_where_rows_differ_and_one_note_where_all_have_them(
    suite_of, record_of
):
    suite, earlier = suite_of(SUITE), handmade.certificate(drawn={})
    made = [record_of(trial, test_ppl=9.0) for trial in suite.trials]
    old = [record.model_copy(update={"certificate": earlier}) for record in made]
    both = select(suite_table.build(handmade.findings(suite, [*old[:2], *made[2:]])))
    assert [line.cells[-1].text for line in both.lines] == ["2/2 °", "2/2"]
    assert "certified" not in both.notes[0]
    all_of_them = select(suite_table.build(handmade.findings(suite, old)))
    assert [line.cells[-1].text for line in all_of_them.lines] == ["2/2", "2/2"]
    assert all_of_them.notes[0].endswith("; certified by earlier, weaker rules (harness docs certificates).")
    assert not any("°" in note for note in all_of_them.notes)


def test_a_table_on_kept_states_says_that_times_are_the_heads(suite_of, record_of, monkeypatch):
    suite = suite_of(handmade.suite_text())
    made = [record_of(suite.trials[0], train_ms_per_batch=2.0)]
    assert notes(tabulated(suite, made), "ms/batch and memory") == []
    monkeypatch.setattr("harness.report.notes.is_frozen", lambda backbone, cls: backbone.name == "lstm")
    (note,) = notes(tabulated(suite, made), "ms/batch and memory")
    assert note.startswith("ms/batch and memory are of the head alone")
