"""What would make the result of a suite fuller or surer, and the command that does it."""

import itertools
import math
from collections.abc import Container, Iterator, Sequence
from functools import partial

from harness.errors import SuiteError
from harness.plan.loading import load
from harness.plan.specs import TrialSpec, as_number
from harness.plan.suite import Row, Suite
from harness.plan.tuning import Axis, TuneSpec, rounded
from harness.printable import counted
from harness.records.record import MENDED, Status
from harness.report import convergence
from harness.report.comparison_notes import NOT_TUNED, tuned_settings
from harness.report.content import COARSE
from harness.report.findings import Findings
from harness.report.retraining import of_trials
from harness.report.row_facts import RowFacts, row_name
from harness.report.statistics import RANK_SEEDS, more_seeds
from harness.report.verdicts import Compared, Verdict, nats

LONGER = 3  # times the epochs: of the command that comes next
FACTORS = (0.25, 0.5, 1, 2, 4)  # of a learning rate that was not tuned
DIVERGED: Status = "diverged"  # such a trial would end so again: it needs another rate


def next_step(findings: Findings, lines: Sequence[RowFacts]) -> tuple[str, str] | None:
    """What would make the result fuller or surer, and its command; None where nothing would."""
    evidence = findings.evidence
    trials = [trial.spec for row in lines for trial in row.trials]
    missing = [trial for trial in trials if trial.id not in evidence.records]
    records = [evidence.records[trial.id] for trial in trials if trial.id in evidence.records]
    failed = [record.spec for record in records if record.status not in ("ok", DIVERGED, "invalid")]
    invalid = [record.spec for record in records if record.status == "invalid"]
    run = partial(of_trials, evidence.suite, (), [""])
    if missing:
        return f"{_have(missing)} not been run:", run()
    if failed:
        return f"{_have(failed)} failed, for the reasons below:", run("--retry-failed")
    if invalid:
        number = f"{counted(len(invalid), 'trial')} {'is' if len(invalid) == 1 else 'are'}"
        return f"{number} invalid, for the reasons below. {MENDED.capitalize()}:", run("--retry-failed")
    trained = [row for row in lines if not row.is_ngram and row.spec.train.epochs]
    for text, changes in _steps(findings, trained) if len(trained) > 1 else ():
        if _accepted(evidence.suite, changes):
            return text, run(*(part for change in changes for part in ("--set", change)))
    return None


def _steps(findings: Findings, trained: Sequence[RowFacts]) -> Iterator[tuple[str, list[str]]]:
    """What would decide more, in the order in which it helps: each with the changes of the suite that
    do it, which are none where they do not apply. What changes the choice of a point or the length of
    training is before more seeds, which would have to be trained again after it.
    """
    suite, compared = findings.evidence.suite, findings.compared_of(trained)
    seeds = list(dict.fromkeys(trial.seed for row in trained for trial in row.trials))
    more = [_with_seeds(seeds, RANK_SEEDS)] if len(seeds) < RANK_SEEDS else []
    epochs = LONGER * max(row.spec.train.epochs for row in trained)
    longer = [] if "epochs" in tuned_settings(suite) else [f"train.epochs={epochs:g}"]
    rates = _rates(trained, seeds) if suite.tune is None else []
    if lost := [row for row in trained if convergence.collapsed(row) or _diverged(row)]:
        names = "; ".join(row_name(row, findings.rows) for row in lost)
        text = f"Collapsed (↓) or diverged: {names}."
        falling = any(convergence.mostly_unconverged(row) for row in lost)
        too = " and for longer" if falling else ""
        yield f"{text} At other learning rates{too}:", rates and rates + longer * falling
        yield f"{text} With a wider range:", _wider(suite, lost)
        collapsed = any(map(convergence.collapsed, lost))
        yield f"{text} Trained {LONGER} times as long:", longer * collapsed
    if not findings.evidence.printed.cells:  # they are of the settings that a paper used
        seeds_too = f" and {RANK_SEEDS} seeds" if more else ""
        yield f"{NOT_TUNED} With the rate tuned for each row{seeds_too}:", rates and rates + more
    if any(convergence.mostly_unconverged(row) for row in trained):
        yield f"Rows have not converged. Train {LONGER} times as long:", longer
    text = "The best value tried is the last of its range, so that a better one may lie beyond it."
    yield f"{text} With a wider range:", _wider(suite, trained)
    judged = "ranked" if suite.table.baseline is None else "ranked and have a verdict"
    yield f"With {RANK_SEEDS} seeds or more, rows are {judged}:", more
    if any(map(_coarse, compared)):
        text = "Rows may be lower between the values that were tried, by more than they differ."
        yield f"{text} With more values:", _finer(suite.tune)
    margin, needed = suite.table.margin, {}
    for each in compared:
        further = more_seeds(each.difference, nats(margin))
        if each.judged == Verdict("undecided") and further is not None and further[1] > 0:
            needed[further[1]] = each.row.head
    if needed:
        number = min(needed)
        text = f"{needed[number]} needs {counted(number, 'more seed')} at most to detect {100 * margin:g} %:"
        yield text, [_with_seeds(seeds, len(seeds) + number)]


def _diverged(row: RowFacts) -> bool:
    return any(record.status == DIVERGED for record in row.records.values())


def _coarse(each: Compared) -> bool:
    """Whether values between those that were tried may settle a comparison: not where a row is best
    at an end.
    """
    rows = [each.row, *(one.control for one in each.against)]
    return COARSE in each.judged.reasons and all(math.isfinite(row.tuning.gap) for row in rows)


def _rates(trained: Sequence[RowFacts], seeds: Sequence[int]) -> list[str]:
    """The change of the suite that tunes the learning rate, around its value, under a new seed."""
    rate = trained[0].spec.train.lr
    grid = ", ".join(f"{rounded(rate * factor, 2):g}" for factor in FACTORS)
    seed = next(each for each in itertools.count() if each not in seeds)
    return [f"tune={{seed: {seed}, space: {{train.lr: [{grid}]}}}}"]


def _accepted(suite: Suite, changes: list[str]) -> list[str]:
    """The changes; [] where the suite's file with them is not valid, as with a rate of dropout above 1."""
    given = tuple(f"{key}={value}" for key, value, _ in suite.overrides)
    try:
        if changes:
            load(suite.path, (*given, *changes))
    except SuiteError:
        return []
    return changes


def _wider(suite: Suite, lines: Sequence[RowFacts]) -> list[str]:
    """The changes of the suite that add a value beyond each end of a grid at which a row's best value is, or that make
    a range wider on the side of its lowest or highest point if that is a row's best one; none if the suite says why
    its values end there.
    """
    found, tune = [], suite.tune
    for key, axis in {} if tune is None or tune.ends else tune.space.items():
        chosen = {as_number(row.tuned.get(key)) for row in lines}
        if axis.range is not None:
            found += _wider_range(key, axis, suite.tuned_rows, chosen)
        elif axis.ordered:
            grid = sorted(map(as_number, axis.grid))
            before = [grid[0] ** 2 / grid[1]] if grid[0] in chosen and grid[0] > 0 else []
            after = [grid[-1] ** 2 / grid[-2]] if grid[-1] in chosen and grid[-2] > 0 else []
            found += _longer_grid(key, axis, [*before, *after])
    return found


def _wider_range(key: str, axis: Axis, rows: Sequence[Row], chosen: Container[float | None]) -> list[str]:
    tried = [each.point[key] for row in rows for each in row.candidates if key in each.point]
    low, high = axis.range
    if axis.log_uniform is not None:
        way, below, above = "log_uniform", low / math.sqrt(high / low), high * math.sqrt(high / low)
    else:
        way, below, above = "uniform", low - (high - low) / 2, high + (high - low) / 2
        below = below if low < 0 else max(below, low / 2)
    ends = (rounded(below, 2) if min(tried) in chosen else low, rounded(above, 2) if max(tried) in chosen else high)
    return [] if ends == (low, high) else [f"tune.space.{key}={{{way}: [{ends[0]:g}, {ends[1]:g}]}}"]


def _longer_grid(key: str, axis: Axis, more: Sequence[float]) -> list[str]:
    """The change that adds values to a grid: with two digits, or whole numbers where all are."""
    grid = set(map(as_number, axis.grid))
    whole = all(type(value) is int for value in axis.grid)
    longer = grid | {round(value) if whole else rounded(value, 2) for value in more}
    factor = "x" if isinstance(axis.grid[0], str) else ""
    values = ",".join(f"{factor}{value:g}" for value in sorted(longer))
    return [] if longer == grid else [f"tune.space.{key}=[{values}]"]


def _finer(tune: TuneSpec | None) -> list[str]:
    """The changes of the suite that put a value between any two of a grid, or that draw twice as many points."""
    found, drawn = [], False
    for key, axis in {} if tune is None else tune.space.items():
        drawn = drawn or axis.range is not None
        if axis.grid is not None and axis.ordered:
            pairs = itertools.pairwise(sorted(map(as_number, axis.grid)))
            found += _longer_grid(key, axis, [math.sqrt(a * b) if a > 0 else (a + b) / 2 for a, b in pairs])
    return [*found, *([f"tune.trials={2 * tune.trials}"] if drawn else [])]


def _with_seeds(seeds: Sequence[int], number: int) -> str:
    """The change of the suite to so many seeds; those it has stay the first."""
    more = (seed for seed in range(1, 2**31) if seed not in seeds)
    made = [*seeds, *itertools.islice(more, max(0, number - len(seeds)))]
    if made == list(range(1, len(made) + 1)):
        return f"seeds={len(made)}"
    return f"seeds=[{','.join(map(str, made))}]"


def _have(trials: Sequence[TrialSpec]) -> str:
    return f"{counted(len(trials), 'trial')} {'has' if len(trials) == 1 else 'have'}"
