"""The notes under a table on its comparisons and on tuning."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from harness.plan.specs import as_number, value_text
from harness.plan.suite import Row, Suite, row_labels
from harness.plan.suite_file import Test
from harness.plan.tuning import Axis, Choice, TuneSpec
from harness.printable import counted
from harness.report import convergence, tuning_doubts, versions
from harness.report.columns import change
from harness.report.content import Level, Note
from harness.report.evidence import Evidence
from harness.report.findings import Findings, percent
from harness.report.row_facts import RowFacts, row_name
from harness.report.statistics import RANK_SEEDS, more_seeds
from harness.report.verdicts import nats, splits_disagree

MEAN = (
    "The change against the baseline (vs) is the geometric mean of the ratios of perplexity over the seeds that both "
    "rows have, less 1. It can differ from the ratio of the means."
)
TESTS = {"paired": "paired t tests over seeds", "welch": "Welch's t tests over seeds"}
NOT_TUNED = "Settings not tuned per head: they may suit one head better than another."
RATE_NOT_TUNED = "Learning rate not tuned per head: it may suit one head better than another."
GAP = (
    "Tuning gap: how much lower the perplexity of a row may be at values between those that were tried. "
    "Comparisons and ranks allow for it"
)
Named = tuple[str, Row]  # a row as notes name it


def of_comparisons(findings: Findings) -> list[str]:
    """How rows are compared, and what limits the comparisons."""
    lines, compared = findings.rows, findings.compared.values()
    return [
        *_tests(findings),
        *_more_seeds(findings),
        *_too_few(lines),
        *of_convergence(lines),
        *(
            note
            for each in compared
            for note in of_splits(row_name(each.row, lines), each.row, each.control, each.test)
        ),
    ]


def of_splits(name: str, row: RowFacts, other: RowFacts, test: Test = "paired") -> list[str]:
    """A note on a row whose two splits disagree about another row, beyond the spread of seeds."""
    found = splits_disagree(row, other, test)
    if found is None:
        return []
    on_test, on_valid = (change(each.mean, each.low, each.high).text for each in found)
    changes = f"{on_test} of test perplexity, but {on_valid} of validation perplexity"
    text = f"The two splits disagree beyond the spread of seeds. {name} against {other.head}: {changes}."
    return [Note(text, level="warning")]


def of_convergence(lines: list[RowFacts]) -> list[str]:
    """Notes on rows with trials that are not converged, on collapsed rows, and on collapsed trials of other rows."""
    named = [(row_name(row, lines), row) for row in lines if not row.is_ngram]
    falling = [(name, len(convergence.unconverged_seeds(row)), len(row.ok_seeds)) for name, row in named]
    counts = [f"{name} {number} of {ok}" for name, number, ok in falling if number]
    last = [name for name, row in named if convergence.collapsed(row)]
    found = [f"{convergence.NOT_CONVERGED_MEANS}. Trials: {'; '.join(counts)}."] if counts else []
    found += [f"{convergence.COLLAPSED_MEANS}: {'; '.join(last)}."] if last else []
    of_rows = ((name, convergence.collapsed_seeds(row)) for name, row in named if name not in last)
    some = [f"{name} seed {', '.join(map(str, seeds))}" for name, seeds in of_rows if seeds]
    return [*found, *_listing(convergence.SOME_COLLAPSED, some, "reading")]


def _listing(about: str, found: Iterable[str], level: Level = "detail") -> list[str]:
    """A note on some rows; none without any."""
    listed = "; ".join(found)
    return [Note(f"{about}: {listed}.", level=level)] if listed else []


def _tests(findings: Findings) -> list[str]:
    table = findings.evidence.suite.table
    beyond = "" if findings.evidence.suite.tune is None else ", of differences beyond the tuning gaps"
    tests = f"{TESTS[table.test]}{beyond}, corrected by Holm's method"
    if not findings.compared:
        return [f"Ranks: {tests}."] if findings.ranks else []
    margin = f"smallest difference of interest {100 * table.margin:g} %."
    return [Note(f"Comparisons: {tests}; {margin} {MEAN}", "comparison")]


def _more_seeds(findings: Findings) -> list[str]:
    """How many seeds the comparisons lack, which in a table of few seeds is most of them."""
    margin, texts = findings.evidence.suite.table.margin, []
    for each in findings.compared.values():
        if (needed := more_seeds(each.difference, nats(margin))) is not None:
            texts.append(f"{row_name(each.row, findings.rows)} {spanned(needed)}")
    if not texts:
        return []
    where = "" if findings.evidence.suite.tune is None else ", at the chosen settings"
    needed = (
        f"Seeds still needed to detect a difference of {100 * margin:g} % with 80 % power (for the 95 % interval of "
        f"the spread{where}): {'; '.join(texts)}."
    )
    return [Note(needed, "comparison")]


def _too_few(lines: list[RowFacts]) -> list[str]:
    """A note where rows could be ranked, but too few seeds are planned."""
    rows = Counter(row.group for row in lines if not row.is_ngram)
    planned = max((len(row.trials) for row in lines if rows[row.group] > 1 and not row.is_ngram), default=RANK_SEEDS)
    if planned >= RANK_SEEDS or any(row.planned is not None and row.planned.size for row in lines):
        return []  # the table of a ladder has words of its own
    text = f"Too few seeds to rank: {planned}, where bold, stars and verdicts need {RANK_SEEDS} or more."
    return [Note(text, level="warning")]


def spanned(numbers: Iterable[int]) -> str:
    """'3', or '3 to 1,200'."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def of_tuning(findings: Findings) -> list[str]:
    """How the settings of rows were chosen. Without `tune`, a table that compares or ranks says that they were not."""
    suite = findings.evidence.suite
    tune = suite.tune
    if tune is None:
        trained = any(not trial.is_ngram for trial in suite.trials)
        compares = suite.table.baseline is not None or findings.ranks
        return [Note(NOT_TUNED, level="reading")] if compares and trained else []
    named = list(zip(_names(findings), suite.tuned_rows, strict=True))
    found = findings.evidence.tuning
    tried = []
    for name, row in named:
        tried.append((name, [found[each.id] for each in row.tuning_trials if each.id in found]))
    lines = findings.rows
    doubts = [f"{row_name(row, lines)}: {row.tuning.doubt}" for row in lines if row.tuning.doubt]
    known = [f"{-percent(-row.tuning.gap):.1f} %" if math.isfinite(row.tuning.gap) else "not known" for row in lines]
    gaps = [f"{row_name(row, lines)} {gap}" for row, gap in zip(lines, known, strict=True)]
    unequal = _listing("Not tuned like the other rows, so without verdict, star and rank", doubts, "warning")
    return [
        _budget(suite, exceptions=bool(unequal)),
        *unequal,
        *([] if tuning_doubts.RATE in tune.space else [Note(RATE_NOT_TUNED, level="reading")]),
        *_edges(tune, named),
        *_listing(GAP, gaps),
        *_not_ok(named, findings.evidence),
        *versions.of_tuning(tried, findings.evidence.outdated),
        *_without_point(named),
    ]


def tuned_settings(suite: Suite) -> list[str]:
    """The settings of `train` that are tuned: their values differ between rows."""
    space = [] if suite.tune is None else suite.tune.space
    return [key.removeprefix("train.") for key in space if key.startswith("train.")]


def _names(findings: Findings) -> list[str]:
    """The rows of the tuning, named as in the table; one that is not in the table as `harness plan` names it."""
    lines, suite = findings.rows, findings.evidence.suite
    shown = {line.planned: row_name(line, lines) for line in lines}
    return [shown.get(row, label) for row, label in zip(suite.tuned_rows, row_labels(suite), strict=True)]


def _budget(suite: Suite, *, exceptions: bool) -> str:
    """'Tuned with the same points for every row: 8 trials of 2 epochs a row, seed 0; lr log-uniform in [0.5, 20].'"""
    spec, numbers = suite.tune, [_attempts(row) for row in suite.tuned_rows]
    most = counted(max(numbers), "trial")
    fewer = "" if min(numbers) == max(numbers) else " (fewer where a key does not apply)"
    other = " except those that the next note names" if exceptions else ""
    space = "; ".join(f"{key.removeprefix('train.')} {_values(axis)}" for key, axis in spec.space.items())
    trials = f"{most} of {suite.tuning_budget} a row{fewer}, seed {spec.seed}"
    return f"Tuned with the same points for every row{other}: {trials}; {space}. {spec.rule}"


def _attempts(row: Row) -> int:
    """How many tuning trials of a row were run; before its choice is known, how many points it has."""
    return len(row.candidates) if row.choice is None else len(row.choice.valid_ppl)


def _values(axis: Axis) -> str:
    if axis.range is not None:
        low, high = axis.range
        return f"{'log-uniform' if axis.log_uniform is not None else 'uniform'} in [{low:g}, {high:g}]"
    return f"{'one of' if axis.choice is not None else 'each of'} {value_text(axis.listed)}"


def _edges(tune: TuneSpec, rows: list[Named]) -> list[str]:
    """The rows whose best point is the lowest or highest one that was tried: a better one may lie beyond."""
    ends = [(name, "" if row.choice is None else ", ".join(_edge(row, row.choice))) for name, row in rows]
    found = [f"{name}: {text}" for name, text in ends if text]
    if len(rows) > 1 and len({text for _, text in ends}) == 1 and found:
        found = [f"all rows: {ends[0][1]}"]
    about = "Chosen at the end of what was tried"
    if not tune.ends:
        return _listing(f"{about}, so a wider range may be better", found, "reading")
    return [
        Note(f"{note} Why it ends there: {tune.ends.removesuffix('.')}.", level="reading")
        for note in _listing(about, found)
    ]


def _edge(row: Row, choice: Choice) -> Iterator[str]:
    """'lr 19.2, the highest', for each key whose value is the lowest or the highest that the row was trained with.

    Only of values that are in an order, and not of 0 as the lowest: below a dropout of 0 there is nothing.
    """
    for key, value in choice.point.items():
        if not row.tune.space[key].ordered:
            continue
        tried = [as_number(each.point[key]) for each in row.candidates]
        low, high = min(tried), max(tried)
        ends = (high,) if low == 0 else (low, high)
        if low < high and as_number(value) in ends:
            end = "lowest" if as_number(value) == low else "highest"
            yield f"{key.removeprefix('train.')} {value if isinstance(value, str) else f'{value:g}'}, the {end}"


def _not_ok(rows: list[Named], evidence: Evidence) -> list[str]:
    """'Tuning trials that are not ok, ...: mos(num_mixtures=2): 2 diverged, 1 oom of 8.'"""
    found = []
    for name, row in rows:
        statuses = Counter(_statuses(row, evidence))
        counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
        found += [f"{name}: {counts} of {_attempts(row)}"] if statuses else []
    return _listing("Tuning trials that are not ok, so that they cannot be chosen", found)


def _statuses(row: Row, evidence: Evidence) -> Iterator[str]:
    """Of the row's tuning trials that failed. The stored choice says that they did, also without their records."""
    choice = row.choice
    for trial in row.tuning_trials:
        record = evidence.tuning.get(trial.id)
        if choice is not None and choice.valid_ppl.get(trial.id, math.inf) is not None:
            continue
        if record is not None and record.status != "ok":
            yield record.status
        elif choice is not None:
            yield "of unknown status"


def _without_point(rows: list[Named]) -> list[str]:
    waiting = [name for name, row in rows if row.choice is None]
    failed = [name for name, row in rows if row.choice is not None and row.chosen is None]
    return [
        *_listing("Not in the table, because not all of their tuning trials are finished", waiting, "warning"),
        *_listing("Not in the table, because all of their tuning trials failed", failed, "warning"),
    ]
