"""Whether a result can be trusted, what comes next, and which row is the lowest: the sentences of a page."""

import handmade
import pytest

from harness.report import outcome

SUITE = handmade.changed(("  - mos: {num_mixtures: 2}", "  - mos: {num_mixtures: [2, 5]}"))


def trust(suite, made) -> list[str]:
    findings = handmade.findings(suite, made)
    return [sentence for sentence, _ in outcome.summary(findings, findings.rows)["Can it be trusted?"]]


@pytest.fixture
def six_seeds(suite_of, record_of):
    """A function: changes of the suite, seeds of K = 5 -> the suite, and records of all six seeds of the other rows."""

    def make(*changes, fewer: int):
        text = SUITE.replace("seeds: [1, 2]", "seeds: [1, 2, 3, 4, 5, 6]")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        suite = suite_of(text)
        levels = {None: 100.0, 2: 80.0, 5: 90.0}
        return suite, [
            record_of(trial, test_ppl=levels[mixtures] + (trial.seed**2 + (mixtures or 0)) % 7 / 10)
            for trial in suite.trials
            if (mixtures := trial.head.params.get("num_mixtures")) != 5 or trial.seed <= fewer
        ]

    return make


def test_the_page_says_that_no_row_has_a_verdict_only_where_none_has_one(six_seeds):
    suite, made = six_seeds(fewer=1)
    findings = handmade.findings(suite, made)
    assert [each.verdict == "too few seeds" for each in findings.compared.values()] == [False, True]
    assert not [sentence for sentence in trust(suite, made) if "better or worse" in sentence]
    few = [record for record in made if record.spec.seed < 6]
    assert "! No row is called better or worse: that needs 6 seeds, and the comparisons have 5 at most." in trust(
        suite, few
    )


def test_the_page_says_that_some_seeds_have_not_converged_where_a_row_has_the_mark(six_seeds):
    suite, made = six_seeds(fewer=6)
    assert "✓ Every trial that is ok has converged." in trust(suite, made)
    one = [handmade.learned(made[0], 200.0, 100.0), *made[1:]]
    assert "! 1 of 3 rows (softmax) is not converged in some seeds (↓)." in trust(suite, one)


def test_the_page_counts_the_comparisons_that_are_undecided(six_seeds, record_of):
    suite, made = six_seeds(fewer=6)
    assert not [sentence for sentence in trust(suite, made) if "undecided" in sentence]
    # K = 5 is 2 % above the baseline under three seeds, and 2 % below it under the others
    for number, (softmax, five) in enumerate(zip(made[:6], made[-6:], strict=True)):
        ppl = softmax.metrics["test_ppl"] * (1.02 if number % 2 else 0.98)
        made[made.index(five)] = record_of(five.spec, test_ppl=ppl)
    (said,) = [sentence for sentence in trust(suite, made) if "undecided" in sentence]
    reason = "which does not mean equal (more seeds are needed in 1)."
    assert said == f"! 1 of 2 comparisons with the baseline is undecided, {reason}"


def test_without_a_baseline_the_page_says_that_rows_are_compared_with_none(six_seeds):
    no_baseline = ("table: {baseline: softmax}", "table: {baseline: null}")
    suite, made = six_seeds(no_baseline, fewer=6)
    assert "! The rows are compared with no baseline." in trust(suite, made)


def test_one_trial_and_one_row_are_singular(suite_of, record_of):
    text = handmade.changed(("  - mos: {num_mixtures: 2}\n", ""), ("seeds: [1, 2]", "seeds: [1]"))
    suite = suite_of(text)
    made = record_of(suite.trials[0], test_ppl=1090.0)  # 0.95 of the unigram's 1100 is 1045
    findings = handmade.findings(suite, [made])
    assert outcome.summary(findings, findings.rows)["What comes next"] == []
    assert trust(suite, [made]) == [
        "✓ 1 of 1 trial is ok.",
        "✓ Every trial that is ok has converged.",
        "✓ No row is outdated by a later change of code.",
        "✓ Every perplexity is certified.",
        "! 1 of 1 row is collapsed (↓): hardly better than the frequencies of words, or worse.",
    ]


def test_the_lowest_row_has_no_compatibility_switch_and_is_not_collapsed(suite_of, record_of):
    suite = suite_of(
        handmade.changed(
            (
                "  - mos: {num_mixtures: 2}",
                "  - mos: {num_mixtures: 2}\n  - moc: {num_mixtures: 2}\n  - sigsoftmax: {compat: {log_epsilon: 1e-8}}",
            )
        )
    )

    def lowest(**ppls):
        made = [record_of(trial, test_ppl=ppls[trial.head.name]) for trial in suite.trials]
        found = outcome.lowest(handmade.evidence(suite, made).rows)
        return [(row.spec.head.name, count) for row, count in found]

    # a unigram model has 1100, so 1045 and more are collapsed
    assert lowest(softmax=100.0, mos=90.0, moc=1050.0, sigsoftmax=10.0) == [("mos", 2)]
    assert lowest(softmax=1070.0, mos=1060.0, moc=1050.0, sigsoftmax=10.0) == [("moc", 3)]
