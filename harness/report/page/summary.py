"""The first lines of a page: what is the result, can it be trusted, what comes next."""

import statistics
from collections.abc import Sequence

from harness.plan.specs import TrialSpec
from harness.report.evidence import convergence, reproduced
from harness.report.evidence.gather import Evidence
from harness.report.evidence.multiple import RANK_SEEDS
from harness.report.evidence.table_rows import Row
from harness.report.reproduce import of_trials

MOST = 4  # corpora and backbones of which the lowest perplexity is named


def summary(evidence: Evidence, lines: Sequence[Row]) -> dict[str, list[tuple[str, str]]]:
    """Sentences for a reader who sees the page for the first time, under three headings, each with a command or ''.

    Args:
        lines: the rows of the page.
    """
    return {
        "Result": [(sentence, "") for sentence in _result(lines)],
        "Can it be trusted?": [(sentence, "") for sentence in _trust(evidence, lines)],
        "What comes next": [_next(evidence, lines)],
    }


def lowest(lines: Sequence[Row]) -> list[tuple[Row, int]]:
    """The row with the lowest mean test perplexity of each corpus and backbone, and of how many rows it is that."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in lines:
        if row.values("test_ppl"):
            groups.setdefault(row.group, []).append(row)
    means = {id(row): statistics.fmean(row.values("test_ppl")) for rows in groups.values() for row in rows}
    return [(min(rows, key=lambda row: means[id(row)]), len(rows)) for rows in groups.values()]


def mean_and_place(row: Row) -> str:
    """'mos(num_mixtures=15), 88.58 ± 0.31 (3 seeds), on ptb with lstm'."""
    values = row.values("test_ppl")
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    seeds = "" if row.is_ngram else f" ({len(values)} seed{'s' * (len(values) > 1)})"
    where = "" if row.is_ngram else f" with {row.backbone}"
    return f"{row.head}, {statistics.fmean(values):.2f}{spread}{seeds}, on {row.corpus}{where}"


def _result(lines: Sequence[Row]) -> list[str]:
    found = lowest(lines)
    sentences = [
        f"{f'Lowest mean test perplexity of {count} rows' if count > 1 else 'Test perplexity'}: {mean_and_place(row)}."
        for row, count in found[:MOST]
    ]
    more = len(found) - MOST
    return sentences + ([f"{more} more corpora and backbones are in the table."] if more > 0 else [])


def _trust(evidence: Evidence, lines: Sequence[Row]) -> list[str]:
    trained = [row for row in lines if not row.is_ngram]
    fewest = min((len(row.ok_seeds) for row in trained if row.ok_seeds), default=None)
    limits = {
        "are not converged (↓): a larger budget may change their order": convergence.mostly_unconverged,
        "are collapsed (∅): they learned little more than frequencies": convergence.collapsed,
        "were made by code that has changed since (¶)": lambda row: row.outdated,
    }
    counts = {text: sum(bool(row.ok_seeds) and applies(row) for row in lines) for text, applies in limits.items()}
    sentences = [f"{evidence.trials.ok} of {evidence.trials.planned} trials are finished and ok."]
    if fewest is not None and fewest < RANK_SEEDS and len(trained) > 1:
        sentences.append(f"No row is called better or worse: that needs {RANK_SEEDS} seeds, and some have {fewest}.")
    sentences += [f"{count} of {len(lines)} rows {text}." for text, count in counts.items() if count]
    numbers = [found for row in lines if (found := reproduced.of_row(row, evidence))]
    answers = [reproduced.together(found) for found in numbers]
    if answers:
        yes = sum(answer in reproduced.YES for answer in answers)
        sentences.append(f"{yes} of {len(answers)} rows with a printed number and a tolerance are reproduced so far.")
    return sentences


def _next(evidence: Evidence, lines: Sequence[Row]) -> tuple[str, str]:
    trials = [trial for row in lines for trial in row.trials]
    missing = [trial for trial in trials if trial.id not in evidence.records]
    failed = [trial for trial in trials if trial.id in evidence.records and evidence.records[trial.id].status != "ok"]
    if missing:
        return f"{_number(missing)} not been run:", of_trials(evidence.suite, (), [""])
    if failed:
        return f"{_number(failed)} failed, for the reasons below:", of_trials(
            evidence.suite, (), [""], "--retry-failed"
        )
    if any(not row.is_ngram and len(row.ok_seeds) < RANK_SEEDS for row in lines) and len(lines) > 1:
        return f"With {RANK_SEEDS} seeds or more in the suite's `seeds`, rows are ranked and have a verdict.", ""
    return "Open a row for its settings, its trials and the command that runs it again.", ""


def _number(trials: Sequence[TrialSpec]) -> str:
    return "1 trial has" if len(trials) == 1 else f"{len(trials)} trials have"
