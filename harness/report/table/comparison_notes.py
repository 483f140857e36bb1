"""The notes under a table on its comparisons: the test, too few seeds, trials that are not converged, decays."""

from collections import Counter
from collections.abc import Iterable

from harness.plan.specs import Plateau
from harness.report.evidence import convergence
from harness.report.evidence.findings import Findings
from harness.report.evidence.multiple import RANK_SEEDS
from harness.report.evidence.power import more_seeds
from harness.report.evidence.seed_pairs import scored_seeds
from harness.report.evidence.statistics import WIDEST
from harness.report.evidence.table_rows import Row
from harness.report.evidence.verdicts import nats
from harness.report.table.comparison_cells import TOO_WIDE, against
from harness.report.table.content import Note
from harness.report.table.time_notes import row_name

COLUMNS = ("vs ", "verdict", "p (", "reduction")  # that the notes on tests are about
MEAN = (
    "The change against the baseline (vs) is the geometric mean of the ratios of perplexity over the seeds that both "
    "rows have, less 1. It can differ from the ratio of the means."
)
WIDE = f"{TOO_WIDE}: the ends of the 95 % interval are further apart than by a factor of {WIDEST:g}."
TESTS = {"paired": "paired t tests over seeds", "welch": "Welch's t tests over seeds"}


def notes(findings: Findings) -> list[str]:
    """How rows are compared, and what limits the comparisons."""
    return [*_tests(findings), *_more_seeds(findings), *_too_few(findings.lines), *_training(findings.lines)]


def of_convergence(lines: list[Row]) -> list[str]:
    """Notes on rows with trials that are not converged, on collapsed rows, and on collapsed trials of other rows."""
    falling = {name: row for name, row in _named(lines) if convergence.unconverged_seeds(row)}
    last = [name for name, row in _named(lines) if convergence.collapsed(row)]
    counts = [
        f"{name} {len(convergence.unconverged_seeds(row))} of {len(row.ok_seeds)}" for name, row in falling.items()
    ]
    found = [f"{convergence.NOT_CONVERGED_MEANS}. Trials: {'; '.join(counts)}."] if falling else []
    found += [f"{convergence.COLLAPSED_MEANS}: {'; '.join(last)}."] if last else []
    of_rows = ((name, convergence.collapsed_seeds(row)) for name, row in _named(lines))
    some = [f"{name} seed {', '.join(map(str, seeds))}" for name, seeds in of_rows if seeds]
    collapsed = f"{convergence.SOME_COLLAPSED}: {'; '.join(some)}."
    return [*found, *([Note(collapsed, level="reading")] if some else [])]


def _tests(findings: Findings) -> list[str]:
    table = findings.evidence.suite.table
    beyond = "" if findings.evidence.suite.tuning is None else ", of differences beyond the tuning gaps"
    tests = f"{TESTS[table.test]}{beyond}, corrected by Holm's method"
    if not findings.compared:
        return [f"Ranks: {tests}."] if findings.ranks else []
    margin = f"smallest difference of interest {100 * table.margin:g} %."
    found = [Note(f"Comparisons: {tests}; {margin} {MEAN}{_fewer_seeds(findings)}", COLUMNS)]
    wide = any(TOO_WIDE in against(each).text for each in findings.compared.values())
    return [*found, Note(WIDE, COLUMNS)] if wide else found


def _fewer_seeds(findings: Findings) -> str:
    """' Seeds shared ...: mos(num_mixtures=2) 1.' where a mean in the table is over other seeds than the comparison."""
    fewer = [
        f"{row_name(each.row, findings.lines)} {len(each.seeds)}"
        for each in findings.compared.values()
        if any(len(scored_seeds(row)) > len(each.seeds) for row in (each.row, each.baseline))
    ]
    return f" Seeds shared, where one of both rows has more: {'; '.join(fewer)}." if fewer else ""


def _more_seeds(findings: Findings) -> list[str]:
    """How many seeds the comparisons lack, which in a table of few seeds is most of them."""
    margin, texts = findings.evidence.suite.table.margin, []
    for each in findings.compared.values():
        if (needed := more_seeds(each.difference, nats(margin))) is not None:
            texts.append(f"{row_name(each.row, findings.lines)} {_range(needed)}")
    if not texts:
        return []
    where = "" if findings.evidence.suite.tuning is None else ", at the chosen settings"
    needed = (
        f"Seeds still needed to detect a difference of {100 * margin:g} % with 80 % power (for the 95 % interval of "
        f"the spread{where}): {'; '.join(texts)}."
    )
    return [Note(needed, COLUMNS)]


def _too_few(lines: list[Row]) -> list[str]:
    """A note where rows could be ranked, but too few seeds are planned."""
    rows = Counter(row.group for row in lines if not row.is_ngram)
    planned = max((len(row.trials) for row in lines if rows[row.group] > 1 and not row.is_ngram), default=RANK_SEEDS)
    if planned >= RANK_SEEDS:
        return []
    text = f"Too few seeds to rank: {planned}. Bold, stars and verdicts need {RANK_SEEDS} or more."
    return [Note(text, level="warning")]


def _training(lines: list[Row]) -> list[str]:
    """What the curves show: trials that are not converged, and how often a plateau lowered the learning rate."""
    lowered = []
    for name, row in _named(lines):
        schedule = row.trials[0].train.schedule
        curves = [row.records[seed] for seed in row.ok_seeds if row.records[seed].curve]
        if schedule is not None and isinstance(schedule.way, Plateau) and curves:
            lowered.append(f"{name} {_range([convergence.decays(record) for record in curves])}")
    found = of_convergence(lines)
    return [*found, f"Decays of the learning rate on a plateau, by trial: {'; '.join(lowered)}."] if lowered else found


def _named(lines: list[Row]) -> list[tuple[str, Row]]:
    """The trained rows with their names in notes."""
    return [(row_name(row, lines), row) for row in lines if not row.is_ngram]


def _range(numbers: Iterable[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
