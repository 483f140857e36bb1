"""What stands under a table of its comparisons, its times and its code: what was tested, and what its signs mean."""

from collections.abc import Iterable

from harness.records.metrics import METRICS
from harness.records.timings import Timing
from harness.report.evidence import versions
from harness.report.evidence.comparisons import SIGNIFICANT, Compared
from harness.report.evidence.findings import BLOCKS_MARK, SHARED_MARK, TIE_MARK, Findings
from harness.report.evidence.statistics import BLOCK, STAR_SEEDS, STARS
from harness.report.evidence.table_rows import Row
from harness.report.evidence.times import time_of


def of_comparisons(findings: Findings) -> list[str]:
    """How heads were compared with the baseline and with the best."""
    baseline, compared = findings.evidence.suite.table.baseline, list(findings.compared.values())
    notes = []
    if baseline is not None:
        notes.append(
            f"vs {baseline}: change of test perplexity against {baseline} under the same seed, from the mean "
            "difference of log perplexity over the seeds that both have (pairs)."
        )
    if any(each.paired.n > 1 for each in compared):
        bounds = ", ".join(f"{mark} below {bound:g}" for bound, mark in reversed(STARS))
        notes.append(
            "In brackets its 95 % t interval. p (Holm): paired t test, corrected over all comparisons of the table; "
            f"{bounds}, no star below {STAR_SEEDS} seeds. p (signs): {_patterns(compared)}, not corrected."
        )
    if any(each.interval is not None and each.interval.low is not None for each in compared):
        notes.append(
            f"{BLOCKS_MARK} one seed: a 95 % bootstrap interval over blocks of {BLOCK:,} test tokens: of these weights "
            "on other text of the kind, not of other seeds."
        )
    return notes + _more_seeds(findings) + _ranks(findings)


def of_times(findings: Findings) -> list[str]:
    """Under which conditions ms/batch was taken: in each exclusive pass, or while trials trained, maybe sharing."""
    timings = findings.evidence.timings
    rows_of: dict[str | None, list[Row]] = {}  # the pass that a row's times are of, None for what its trials noted
    shared = False
    for row in findings.lines:
        timed = [metric.name for metric in METRICS.values() if metric.timed]
        times = [time for name in timed if (time := time_of(row, name, timings)) is not None]
        for passed in dict.fromkeys(time.passed for time in times):
            rows_of.setdefault(passed, []).append(row)
        shared = shared or not all(time.exclusive for time in times)
    notes = []
    for passed, rows in rows_of.items():
        whose = f"ms/batch of {_names(rows, findings.lines)}" if len(rows_of) > 1 else "ms/batch"
        how = _while_training(rows, timings) if passed is None else _pass(passed, rows, timings)
        notes.append(f"{whose}: {how}")
    if shared:
        notes.append(
            f"{SHARED_MARK} taken while other work shared the machine: compare such times within this table only."
        )
    return notes


def of_code(findings: Findings) -> list[str]:
    """Whose code has changed since, or is of several versions."""
    evidence, lines = findings.evidence, findings.lines
    planned = [evidence.records[trial.id] for row in lines for trial in row.trials if trial.id in evidence.records]
    rows = versions.of_rows(((_name(row, lines), row) for row in lines), evidence.outdated)
    return rows + versions.of_harness(planned, evidence.harness_code)


def _patterns(compared: Iterable[Compared]) -> str:
    """'sign-flip test, exact over all 256 patterns'."""
    counted = {(each.paired.patterns, each.paired.patterns == 2**each.paired.n) for each in compared}
    told = [
        f"over all {number:,} patterns" if exact else f"over {number:,} patterns drawn"
        for number, exact in sorted(pair for pair in counted if pair[0] is not None)
    ]
    return f"sign-flip test {' or '.join(told)}"


def _more_seeds(findings: Findings) -> list[str]:
    """'Seeds still needed to see 1 % at 80 % power: ...', most of which a table of few seeds needs."""
    needed = [(each.row, each.paired.more_seeds) for each in findings.compared.values()]
    told = [f"{_name(row, findings.lines)} {more}" for row, more in needed if more is not None]
    if not told:
        return []
    return [
        "Seeds still needed to see a difference of 1 % at 80 % power, were the spread of these pairs the true one: "
        f"{'; '.join(told)}."
    ]


def _ranks(findings: Findings) -> list[str]:
    if not findings.ranks:
        return []
    tie = (
        f" {TIE_MARK}: the best and what is not told apart from it (paired t test, p >= {SIGNIFICANT:g}, or the "
        "interval over blocks; what nothing tells apart is a tie)."
    )
    return [
        "Bold: the lowest mean test ppl of a corpus and backbone, among those measured on one device."
        + (tie if findings.tied else "")
    ]


def _pass(name: str, rows: list[Row], timings: dict[str, Timing]) -> str:
    """The conditions of one exclusive pass."""
    taken = [each for each in _timings(rows, timings) if each.passed == name]
    one, rounds, batches = taken[0], {each.rounds for each in taken}, {each.batches for each in taken}
    busy = [each.busy for each in taken if each.busy is not None]
    return (
        f"after training, one model at a time, in {_range(rounds)} rounds with {_range(batches)} training batches a "
        f"model; median ± interquartile range. Taken on {one.device}, {one.threads} thread(s), torch {one.torch}, "
        f"harness at {one.commit}, {min(each.taken for each in taken)}"
        + (f"; other work took {max(busy):.1f} cores just before." if busy else ".")
    )


def _while_training(rows: list[Row], timings: dict[str, Timing]) -> str:
    """How trials' own times were taken, and whether a pass that found others at work is why they stand here."""
    disturbed = [each.busy for each in _timings(rows, timings) if each.shared and each.busy is not None]
    why = f" An exclusive pass found {max(disturbed):.1f} cores busy with other work." if disturbed else ""
    return f"of each trial while it trained, the mean over seeds.{why}"


def _timings(rows: list[Row], timings: dict[str, Timing]) -> list[Timing]:
    return [timings[trial.id] for row in rows for trial in row.trials if trial.id in timings]


def _range(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _names(rows: Iterable[Row], lines: list[Row]) -> str:
    return "; ".join(_name(row, lines) for row in rows)


def _name(row: Row, lines: list[Row]) -> str:
    """A row as a note names it: its head, with what else tells it apart."""
    others = [kind for kind in ("corpus", "backbone") if len({getattr(line, kind) for line in lines}) > 1]
    return ", ".join([row.head, *(getattr(row, kind) for kind in others)])
