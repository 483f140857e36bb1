"""N-grams in tables, plots and pages: with their numbers and printed ones, without rank, seeds and comparisons."""

import handmade
import pytest
from handmade import evidence, findings, tabulated

from harness.report import suite_table
from harness.report.figures import plots
from harness.report.findings import find
from harness.report.page import document

SUITE = handmade.suite_text(
    corpora="[{markov: {vocab_size: 12, num_tokens: 400, branching: [2, 3]}}]",
    heads="[softmax, {mos: {num_mixtures: 2}}]",
    seeds="[1, 2]",
    ngrams="[3, {order: 5, cache: true}]",
    table="{baseline: softmax}",
)
ONLY = """\
name: suite
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
ngrams: [3, {order: 5, cache: true}]
"""
COUNTED = {"stored_ngrams": 2_393_806.0}


def records(suite, record_of):
    """N-grams with the perplexities 5, 6, ...: the lowest of all."""
    trained = [trial for trial in suite.trials if not trial.is_ngram]
    ngrams = [trial for trial in suite.trials if trial.is_ngram]
    return [
        *(record_of(trial, test_ppl=10 + n / 8, valid_ppl=9.0) for n, trial in enumerate(trained)),
        *(record_of(trial, test_ppl=5.0 + n, valid_ppl=4.0, **COUNTED) for n, trial in enumerate(ngrams)),
    ]


def lines(table) -> list[dict[str, str]]:
    names = [column.header for column in table.columns]
    return [dict(zip(names, (cell.text for cell in line.cells), strict=True)) for line in table.lines]


def test_rows_of_ngrams_are_compared_with_nothing(suite_of, record_of):
    suite = suite_of(SUITE)
    found = findings(suite, records(suite, record_of))
    ngrams = {line for line in found.rows if line.is_ngram}
    assert len(ngrams) == 4
    assert not ngrams & (found.compared.keys() | found.ranks.keys())
    assert found.compared.keys() | ngrams | {found.rows[0], found.rows[2]} == set(found.rows)


@pytest.mark.parametrize("shape", ["mixtures", "heads", "corpora"])
def test_every_shape_has_their_numbers(suite_of, record_of, shape):
    suite = suite_of(SUITE)
    table = suite_table.build(findings(suite, records(suite, record_of)), shape)
    cells = {cell for line in lines(table) for cell in line.values()}
    assert {"5.00", "6.00", "7.00", "8.00", "2,393,806", "0"} <= cells
    assert all(len(line.cells) == len(table.columns) for line in table.lines)


def test_corpora_has_no_reduction_of_ngrams_and_no_number_of_other_heads_in_their_lines(suite_of, record_of):
    suite = suite_of(SUITE)
    table = suite_table.build(findings(suite, records(suite, record_of)), "corpora")
    names = [column.header for column in table.columns]
    ngrams = ["Kneser-Ney 3", "Kneser-Ney 5, cache"]
    trained = ["softmax", "MoS 2", "MoS 2 reduction"]
    assert names == ["corpus", "backbone", "quantity", *trained, *ngrams]
    for line in lines(table):
        other = trained if line["backbone"] == "last_tokens" else ngrams
        assert {line[name] for name in other} == {"-"}


def test_notes_tell_seeds_and_settings_of_training_only_and_how_ngrams_are_made(suite_of, record_of):
    suite = suite_of(SUITE)
    text = tabulated(suite, records(suite, record_of))
    assert "Training: optimizer sgd, lr 0.5, epochs 2, batch_size 4, seq_len 7; seeds 1, 2" in text
    assert "kneser_ney: n-grams, counted once in the training split, without seed" in text
    assert "Backbone: last_tokens" not in text


def test_a_table_of_ngrams_only(suite_of, record_of):
    suite = suite_of(ONLY)
    text = tabulated(suite, records(suite, record_of))
    assert "Training:" not in text
    assert "kneser_ney: n-grams" in text
    assert "**" not in text  # no rank


def test_plots_leave_them_out(suite_of, record_of):
    suite = suite_of(SUITE)
    made = plots.draw(find(evidence(suite, records(suite, record_of))), "suite")
    assert any(isinstance(plot, plots.Plot) for plot in made)
    assert not [plot for plot in made if "last_tokens" in plot.title or "kneser_ney" in getattr(plot, "svg", "")]
    only = suite_of(ONLY)
    made = plots.draw(find(evidence(only, records(only, record_of))), "suite")
    assert {plot.reason for plot in made} == {"n-grams are in no plot"}


def test_the_page_of_ngrams_only_has_no_seeds_and_no_budget(suite_of, record_of):
    suite = suite_of(SUITE)
    about = document._about(evidence(suite, records(suite, record_of)))
    assert (about["Seeds"], about["Budget"]) == ("1, 2", "2 epochs")
    only = suite_of(ONLY)
    assert not {"Seeds", "Budget"} & document._about(evidence(only, records(only, record_of))).keys()


def test_the_printed_numbers_fit_their_rows(suite_of):
    from harness.report import printed_numbers
    from harness.report.row_facts import rows

    suite = suite_of(
        ONLY.replace("{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}", "ptb").replace("[3,", "[3, 5,")
        + "table: {compare: inan2017/table2}\n"
    )
    printed = printed_numbers.load(suite)
    found = [printed.find(row.spec, row.params, "test_ppl") for row in rows(suite, {})]
    assert [cell and cell.value for cell in found] == [None, "141.2", "125.7"]
