"""The first lines of a page: what is the result, can it be trusted, what comes next."""

import math
from collections import Counter
from collections.abc import Sequence

from harness.plan.specs import TrialSpec
from harness.printable import counted
from harness.report import outcome
from harness.report.evidence import convergence, reproduced
from harness.report.evidence.comparisons import Compared
from harness.report.evidence.findings import Findings, percent
from harness.report.evidence.gather import Evidence
from harness.report.evidence.multiple import RANK_SEEDS
from harness.report.evidence.table_rows import Row
from harness.report.outcome import UNDECIDED
from harness.report.reproduce import of_trials


def summary(findings: Findings, lines: Sequence[Row]) -> dict[str, list[tuple[str, str]]]:
    """Sentences for a reader who sees the page for the first time, under three headings, each with a command or ''.

    Args:
        lines: the rows of the page.
    """
    return {
        "Result": [(sentence, "") for sentence in outcome.sentences(findings, lines)],
        "Can it be trusted?": [(sentence, "") for sentence in _trust(findings, lines)],
        "What comes next": [_next(findings.evidence, lines)],
    }


def _trust(findings: Findings, lines: Sequence[Row]) -> list[str]:
    evidence, ok = findings.evidence, findings.evidence.trials.ok
    limits = {
        "not converged (↓): a larger budget may change their order": convergence.mostly_unconverged,
        "collapsed (∅): hardly better than the frequencies of words, or worse": convergence.collapsed,
        "made by code that has changed since (¶)": lambda row: row.outdated,
    }
    counts = {text: sum(bool(row.ok_seeds) and applies(row) for row in lines) for text, applies in limits.items()}
    sentences = [f"{ok:,} of {counted(evidence.trials.planned, 'trial')} {_be(ok)} finished and ok."]
    sentences += [*_unjudged(findings, lines), *_undecided(findings, lines), *_tuned(lines)]
    of_rows = counted(len(lines), "row")
    sentences += [f"{count} of {of_rows} {_be(count)} {text}." for text, count in counts.items() if count]
    numbers = [found for row in lines if (found := reproduced.of_row(row, evidence))]
    answers = [reproduced.together(found) for found in numbers]
    if answers:
        yes = sum(answer in reproduced.YES for answer in answers)
        of_rows = counted(len(answers), "row")
        sentences.append(f"{yes} of {of_rows} with a printed number and a tolerance {_be(yes)} reproduced so far.")
    return sentences


def _unjudged(findings: Findings, lines: Sequence[Row]) -> list[str]:
    """A sentence where no row has a verdict but 'too few seeds'."""
    compared = _compared(findings, lines)
    if sum(bool(row.ok_seeds) and not row.is_ngram for row in lines) < 2:
        return []
    if not compared:
        return ["The rows are compared with no baseline."]
    if any(each.verdict != "too few seeds" for each in compared):
        return []
    most = max(each.difference.n for each in compared)
    return [
        f"No row is called better or worse: that needs {RANK_SEEDS} seeds, and the comparisons have {most} at most."
    ]


def _compared(findings: Findings, lines: Sequence[Row]) -> list[Compared]:
    shown = set(map(id, lines))
    return [each for each in findings.compared.values() if id(each.row) in shown]


def _undecided(findings: Findings, lines: Sequence[Row]) -> list[str]:
    """'7 of 9 comparisons with the baseline are undecided, which does not mean equal (5: coarse tuning; 2: ...).'"""
    compared = _compared(findings, lines)
    reasons = Counter(each.verdict for each in compared if each.verdict.startswith(UNDECIDED))
    if not reasons:
        return []
    why = "; ".join(
        f"{count}: {reason.removeprefix(UNDECIDED).removeprefix(': ') or 'more seeds are needed'}"
        for reason, count in reasons.most_common()
    )
    of_all, number = counted(len(compared), "comparison"), reasons.total()
    return [f"{number} of {of_all} with the baseline {_be(number)} undecided, which does not mean equal ({why})."]


def _tuned(lines: Sequence[Row]) -> list[str]:
    """How much lower the rows may be at values between those that tuning tried."""
    gaps = [row.tuning_gap for row in lines if row.tuned]
    if not gaps:
        return []
    known = [-percent(-gap) for gap in gaps if math.isfinite(gap)]
    unknown = len(gaps) - len(known)
    parts = [f"by up to {max(known):.1f} %"] if known else []
    parts += [f"{counted(unknown, 'row')} by an unknown amount"] if unknown else []
    return [
        f"Between the values that tuning tried, rows may be lower: {', '.join(parts)} (tuning gap). Verdicts, stars "
        "and ranks allow for it, the means do not."
    ]


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
        judged = "ranked" if evidence.suite.table.baseline is None else "ranked and have a verdict"
        more = f"With {RANK_SEEDS} seeds or more in the suite's `seeds`, rows are {judged}. Add some, then:"
        return more, of_trials(evidence.suite, (), [""])
    return "Open a row for its settings, its trials and the command that runs it again.", ""


def _number(trials: Sequence[TrialSpec]) -> str:
    return f"{counted(len(trials), 'trial')} {'has' if len(trials) == 1 else 'have'}"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"
