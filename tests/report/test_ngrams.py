"""N-grams in tables, plots and pages: with their numbers and printed ones, without rank, seeds and comparisons."""

import handmade
from handmade import evidence, findings

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


def test_rows_of_ngrams_are_compared_with_nothing(suite_of, record_of):
    suite = suite_of(SUITE)
    found = findings(suite, records(suite, record_of))
    ngrams = {line for line in found.rows if line.is_ngram}
    assert len(ngrams) == 4
    assert not ngrams & (found.compared.keys() | found.ranks.keys())
    assert found.compared.keys() | ngrams | {found.rows[0], found.rows[2]} == set(found.rows)


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
