"""The first lines of a page: what is the result, can it be trusted, what comes next."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from harness.plan.specs import TrialSpec
from harness.plan.tuning import Tuning, rounded
from harness.printable import counted
from harness.report import outcome
from harness.report.evidence import convergence, reproduced
from harness.report.evidence.comparisons import Compared
from harness.report.evidence.findings import Findings, percent
from harness.report.evidence.multiple import RANK_SEEDS
from harness.report.evidence.power import more_seeds
from harness.report.evidence.table_rows import Row
from harness.report.evidence.verdicts import nats
from harness.report.reproduce import of_trials

LONGER = 3  # times the epochs: of the command that comes next
OPEN = "Open a row for its settings, its trials and the command that runs it again."


def summary(findings: Findings, lines: Sequence[Row]) -> dict[str, list[tuple[str, str]]]:
    """Sentences for a reader who sees the page for the first time, under three headings, each with a command or ''.

    Args:
        lines: the rows of the page.
    """
    return {
        "Result": [(sentence, "") for sentence in outcome.sentences(findings, lines)],
        "Can it be trusted?": [(sentence, "") for sentence in _trust(findings, lines)],
        "What comes next": [_next(findings, lines)],
    }


def _trust(findings: Findings, lines: Sequence[Row]) -> list[str]:
    """What a reader would ask, each with a tick where nothing limits the numbers, or an exclamation mark."""
    evidence, ok = findings.evidence, findings.evidence.trials.ok
    made = [row for row in lines if row.ok_seeds]
    limits = (
        (
            "Every row has converged",
            "not converged (↓): a larger budget may change their order",
            convergence.mostly_unconverged,
        ),
        ("", "collapsed (∅): hardly better than the frequencies of words, or worse", convergence.collapsed),
        ("The code is that of today", "made by code that has changed since (¶)", lambda row: row.outdated),
        ("Every perplexity is certified", "certified by earlier, weaker rules or not at all (△, °)", _uncertified),
    )
    found = [(ok == evidence.trials.planned, f"{ok:,} of {counted(evidence.trials.planned, 'trial')} {_be(ok)} ok.")]
    for good, bad, applies in limits if made else ():
        count = sum(map(applies, made))
        if count:
            found.append((False, f"{count} of {counted(len(lines), 'row')} {_be(count)} {bad}."))
        elif good:
            found.append((True, f"{good}."))
    found += [(False, text) for text in [*_unjudged(findings, lines), *_undecided(findings, lines), *_tuned(lines)]]
    numbers = [numbers for row in lines if (numbers := reproduced.of_row(row, evidence))]
    answers = [reproduced.together(each) for each in numbers]
    if answers:
        yes = sum(answer in reproduced.YES for answer in answers)
        of_rows = counted(len(answers), "row")
        text = f"{yes} of {of_rows} with a printed number and a tolerance {_be(yes)} reproduced so far."
        found.append((yes == len(answers), text))
    return [f"{'✓' if good else '!'} {text}" for good, text in sorted(found, key=lambda each: not each[0])]


def _uncertified(row: Row) -> bool:
    return row.uncertified or row.certified_earlier


def _unjudged(findings: Findings, lines: Sequence[Row]) -> list[str]:
    """A sentence where no row has a verdict but 'too few seeds'."""
    compared = _compared(findings, lines)
    if sum(bool(row.ok_seeds) and not row.is_ngram for row in lines) < 2:
        return []
    if not compared:
        return ["The rows are compared with no baseline."]
    if any(each.judged.word != "too few seeds" for each in compared):
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
    reasons = Counter(each.judged.why for each in compared if each.judged.word == "undecided")
    if not reasons:
        return []
    why = "; ".join(f"{count}: {reason or 'more seeds are needed'}" for reason, count in reasons.most_common())
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


def _next(findings: Findings, lines: Sequence[Row]) -> tuple[str, str]:
    evidence = findings.evidence
    trials = [trial for row in lines for trial in row.trials]
    missing = [trial for trial in trials if trial.id not in evidence.records]
    failed = [trial for trial in trials if trial.id in evidence.records and evidence.records[trial.id].status != "ok"]
    if missing:
        return f"{_number(missing)} not been run:", of_trials(evidence.suite, (), [""])
    if failed:
        return f"{_number(failed)} failed, for the reasons below:", of_trials(
            evidence.suite, (), [""], "--retry-failed"
        )
    trained = [row for row in lines if not row.is_ngram]
    if len(trained) < 2:
        return OPEN, ""
    return _of_statistics(findings, trained)


def _of_statistics(findings: Findings, trained: Sequence[Row]) -> tuple[str, str]:
    """What would decide more: more seeds, more epochs, or a wider range of a tuned setting."""
    suite, compared = findings.evidence.suite, _compared(findings, trained)
    seeds = list(dict.fromkeys(trial.seed for row in trained for trial in row.trials))
    if any(len(row.ok_seeds) < RANK_SEEDS for row in trained):
        judged = "ranked" if suite.table.baseline is None else "ranked and have a verdict"
        return f"With {RANK_SEEDS} seeds or more, rows are {judged}:", _with_seeds(findings, seeds, RANK_SEEDS)
    if wider := _wider(suite.tuning, trained):
        text = (
            "The best value tried is the last of its range, so that a better one may lie beyond it. With a wider range:"
        )
        return text, of_trials(suite, (), [""], *(part for change in wider for part in ("--set", change)))
    if any(convergence.mostly_unconverged(row) for row in trained):
        epochs = max(row.trials[0].train.epochs for row in trained)
        change = ("--set", f"train.epochs={LONGER * epochs:g}")
        return f"Rows have not converged. Train {LONGER} times as long:", of_trials(suite, (), [""], *change)
    margin, needed = suite.table.margin, {}
    for each in compared:
        more = more_seeds(each.difference, nats(margin)) if each.judged == ("undecided", "") else None
        if more is not None and more[1] > 0:
            needed[more[1]] = each.row.head
    if needed:
        number = min(needed)
        text = f"{needed[number]} needs {counted(number, 'more seed')} at most to detect {100 * margin:g} %:"
        return text, _with_seeds(findings, seeds, len(seeds) + number)
    return OPEN, ""


def _wider(tuning: Tuning | None, lines: Sequence[Row]) -> list[str]:
    """The changes of the suite that add a value beyond each end of a grid at which a row's best value is."""
    found = []
    for key, axis in {} if tuning is None else tuning.spec.space.items():
        if axis.grid is None or not axis.ordered:
            continue
        grid, chosen = sorted(axis.grid), {row.tuned.get(key) for row in lines}
        before = [rounded(grid[0] ** 2 / grid[1], 2)] if grid[0] in chosen and grid[0] > 0 else []
        after = [rounded(grid[-1] ** 2 / grid[-2], 2)] if grid[-1] in chosen and grid[-2] > 0 else []
        if before or after:
            found.append(f"tune.space.{key}=[{','.join(f'{value:g}' for value in [*before, *grid, *after])}]")
    return found


def _with_seeds(findings: Findings, seeds: Sequence[int], number: int) -> str:
    """The command that runs the suite with so many seeds; those it has stay the first."""
    more = (seed for seed in range(1, 2**31) if seed not in seeds)
    listed = ",".join(map(str, [*seeds, *islice(more, max(0, number - len(seeds)))]))
    return of_trials(findings.evidence.suite, (), [""], "--set", f"seeds=[{listed}]")


def _number(trials: Sequence[TrialSpec]) -> str:
    return f"{counted(len(trials), 'trial')} {'has' if len(trials) == 1 else 'have'}"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"
