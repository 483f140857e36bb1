"""The three shapes: which lines and columns they have, and where a quantity is told."""

from dataclasses import replace

import handmade
import pytest
from handmade import findings

from harness.report import suite_table
from harness.report.content import Table
from harness.report.row_facts import head_counts, rows

SUITE = handmade.suite_text(
    corpora="[{markov: {vocab_size: VOCABS, num_tokens: 400, branching: [2, 3]}}]",
    backbones="[{lstm: {d_model: 8, num_layers: [1, 2]}}]",
    heads="[softmax, {mos: {num_mixtures: 2}}]",
    seeds="[1, 2]",
    table="{baseline: softmax, compare: paper/1}",
)
HEADS = "[softmax, {mos: {num_mixtures: 2}}]"


def laid_out(suite, shape, made=()) -> Table:
    return suite_table.build(findings(suite, made), shape)


def headers(table: Table) -> list[str]:
    return [column.header for column in table.columns]


def texts(table: Table) -> list[dict[str, str]]:
    return [dict(zip(headers(table), (cell.text for cell in line.cells), strict=True)) for line in table.lines]


@pytest.fixture
def suite(suite_of):
    return suite_of(SUITE.replace("VOCABS", "12"))


def by_place(suite, record_of, metric: str):
    """One record a row, of the first seed: its metric is 100 times the corpus, 10 times the backbone, the head."""
    trials = suite.trials[::2]
    return [
        record_of(trial, **{metric: float(100 * (1 + n // 4) + 10 * (1 + n // 2 % 2) + 1 + n % 2)})
        for n, trial in enumerate(trials)
    ]


def test_heads_has_a_line_for_each_backbone_and_head_and_columns_for_each_corpus(suite, record_of):
    table = laid_out(suite, "heads", by_place(suite, record_of, "test_ppl"))
    one, two = "markov, branching 2 test ppl", "markov, branching 3 test ppl"
    assert [(row[one].split()[0], row[two].split()[0]) for row in texts(table)] == [
        ("111.00", "211.00"),
        ("112.00", "212.00"),
        ("121.00", "221.00"),
        ("122.00", "222.00"),
    ]
    assert headers(table)[:7] == ["backbone", "head", "#S", "params", "head params", "train ms/batch", "eval ms/batch"]


@pytest.mark.parametrize("place", [1, 5])  # of the first corpus, of the second
def test_heads_has_an_empty_cell_for_a_row_that_is_not_there_yet(suite, record_of, place):
    """As of a head that has no point of the tuning on one corpus."""
    found = findings(suite, by_place(suite, record_of, "test_ppl"))
    rows = [row for at, row in enumerate(found.rows) if at != place]
    table = suite_table.build(replace(found, rows=rows), "heads")
    one, two = "markov, branching 2 test ppl", "markov, branching 3 test ppl"
    expected = [("111.00", "211.00"), ("112.00", "212.00"), ("121.00", "221.00"), ("122.00", "222.00")]
    expected[1] = ("-", "212.00") if place == 1 else ("112.00", "-")
    assert sorted((row[one].split()[0], row[two].split()[0]) for row in texts(table)) == sorted(expected)


def test_heads_tells_size_and_time_of_each_corpus_where_sizes_differ(suite_of, record_of):
    suite = suite_of(SUITE.replace("VOCABS", "[10, 12]").replace("[2, 3]", "3").replace("[1, 2]}", "1}"))
    table = laid_out(suite, "heads")
    assert headers(table)[:3] == ["head", "#S", "markov, vocab_size 10 params"]
    # d = 8: embedding 8 V, LSTM 576, softmax 8 V + V
    assert [texts(table)[0][f"markov, vocab_size {V} params"] for V in (10, 12)] == ["746", "780"]
    assert "markov, vocab_size 12 train ms/batch" in headers(table)
    assert not [note for note in table.notes if note.startswith("Times and memory")]


def test_corpora_without_a_baseline_has_no_reduction(suite_of):
    table = laid_out(
        suite_of(SUITE.replace("VOCABS", "12").replace("baseline: softmax, ", "baseline: null, ")), "corpora"
    )
    assert headers(table)[2:] == ["quantity", "softmax", "MoS 2"]
    assert not [note for note in table.notes if note.startswith("Reduction")]


@pytest.mark.parametrize("shape", ["mixtures", "heads", "corpora"])
def test_every_line_names_the_trials_that_it_is_of(suite, shape):
    table = laid_out(suite, shape)
    named = [set(line.trials) for line in table.lines]
    assert set.union(*named) == {trial.id for trial in suite.trials}
    assert {len(trials) for trials in named} == {{"mixtures": 2, "heads": 4, "corpora": 4}[shape]}


@pytest.mark.parametrize("shape", ["mixtures", "heads", "corpora"])
def test_lines_of_some_trials_say_what_they_say_in_the_whole_table(suite, record_of, shape):
    table = laid_out(suite, shape, by_place(suite, record_of, "test_ppl"))
    some = suite_table.of_trials(table, {suite.trials[7].id})
    assert some.columns == table.columns
    assert some.notes == table.notes
    assert [line for line in table.lines if suite.trials[7].id in line.trials] == list(some.lines)
    assert 0 < len(some.lines) < len(table.lines)


def test_the_suite_says_its_shape_and_mixtures_is_the_default(suite_of):
    text = SUITE.replace("VOCABS", "12")
    assert headers(suite_table.build(findings(suite_of(text)))) == headers(laid_out(suite_of(text), "mixtures"))
    chosen = suite_of(text.replace("{baseline", "{shape: corpora, baseline"))
    assert headers(suite_table.build(findings(chosen))) == headers(laid_out(chosen, "corpora"))


@pytest.mark.parametrize("shape", ["heads", "corpora"])
def test_a_long_label_of_a_corpus_is_told_once_and_named_by_a_number(suite_of, shape):
    text = SUITE.replace("VOCABS", "[12, 13]").replace("num_tokens: 400", "num_tokens: [400, 800]")
    table = laid_out(suite_of(text.replace("branching: [2, 3]", "branching: 3")), shape)
    named = (
        {column.group for column in table.columns} if shape == "heads" else {line.cells[0].text for line in table.lines}
    )
    assert named - {""} == {"markov 1", "markov 2", "markov 3", "markov 4"}
    assert "markov 2: markov, vocab_size 12, num_tokens 800." in table.notes


# counts


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("softmax", (None, None, None)),
        ("mos: {num_mixtures: 5}", (5, None, None)),
        ("doc: {components: {top: 2, second: 1}}", (3, None, None)),
        ("doc: {components: [4]}", (4, None, None)),
        ("doc: {components: [3, 0]}", (3, None, None)),
        ("mfs: {num_mixtures: 1, num_input_layers: 1, window: 0, num_partitions: 4}", (1, 1, 4)),
        ("mfs: {num_input_layers: 2, window: 2, num_partitions: 1}", (3, 6, 1)),
        ("mfs", (3, 6, 4)),  # of two layers it reads both, with two positions before
    ],
)
def test_counts_of_a_head_are_read_off_its_parameters(suite_of, head, expected):
    text = SUITE.replace("VOCABS", "12").replace("[1, 2]}", "2}").replace("baseline: softmax, ", "")
    suite = suite_of(text.replace(HEADS, f"[{{{head}}}]" if ":" in head else f"[{head}]"))
    assert head_counts(rows(suite, {})[0]) == dict(zip(("#S", "#I", "#P"), expected, strict=True))


def test_a_matched_head_has_the_counts_of_its_constructor_too(suite_of):
    text = SUITE.replace("VOCABS", "5000").replace("d_model: 8, num_layers: [1, 2]", "d_model: 250, num_layers: 2")
    suite = suite_of(text.replace(HEADS, "[softmax, mfs]") + "match: {params: softmax, vary: d_model}\n")
    (mfs, *_) = [row for row in rows(suite, {}) if row.head == "MFS 3"]
    assert head_counts(mfs) == {"#S": 3, "#I": 6, "#P": 4}
