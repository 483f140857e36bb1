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


def _result(lines: Sequence[Row]) -> list[str]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in lines:
        if row.values("test_ppl"):
            groups.setdefault(row.group, []).append(row)
    sentences = []
    for (corpus, backbone), found in list(groups.items())[:MOST]:
        row = min(found, key=lambda each: statistics.fmean(each.values("test_ppl")))
        where = f"on {corpus}" + ("" if row.is_ngram else f" with {backbone}")
        lowest = f"Lowest mean test perplexity of {len(found)} rows" if len(found) > 1 else "Test perplexity"
        sentences.append(f"{lowest} {where}: {row.head}, {_mean(row)}.")
    more = len(groups) - MOST
    return sentences + ([f"{more} more corpora and backbones are in the table."] if more > 0 else [])


def _mean(row: Row) -> str:
    """'88.58 ± 0.31 (3 seeds)'."""
    values = row.values("test_ppl")
    seeds = "" if row.is_ngram else f" ({len(values)} seed{'s' * (len(values) > 1)})"
    return f"{statistics.fmean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "") + seeds


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
