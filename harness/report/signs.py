"""What stands under a table of its comparisons and its times: what was tested, and what its signs mean."""

from collections.abc import Iterable

from harness.report.compared import SIGNIFICANT, Compared
from harness.report.findings import BLOCKS_MARK, SHARED_MARK, TIE_MARK, Findings
from harness.report.rows import Row
from harness.report.statistics import BLOCK, STAR_SEEDS, STARS
from harness.report.times import time_of
from harness.timings import Timing

TIMED = ("train_ms_per_batch", "eval_ms_per_batch", "inference_ms_per_batch")


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
    """Under which conditions ms/batch was taken: of each exclusive pass, and of what was taken while sharing."""
    timings, of_pass, shared = findings.evidence.timings, {}, False
    for row in findings.lines:
        for time in (time_of(row, metric, timings) for metric in TIMED):
            if time is not None and time.passed is not None:
                of_pass.setdefault(time.passed, {})[row.trials[0].id] = row
            shared = shared or (time is not None and not time.exclusive)
    notes = [
        _pass(
            name,
            list(rows.values()),
            timings.values(),
            told=_names(rows.values(), findings.lines) if len(of_pass) > 1 else "",
        )
        for name, rows in of_pass.items()
    ]
    if shared:
        notes.append(
            f"{SHARED_MARK} taken while other work shared the machine: compare such times within this table only."
        )
    return notes


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


def _pass(name: str, rows: list[Row], timings: Iterable[Timing], *, told: str) -> str:
    """The conditions of one exclusive pass."""
    ids = {trial.id for row in rows for trial in row.trials}
    taken = [each for each in timings if each.passed == name and each.trial in ids]
    one, rounds, batches = taken[0], {each.rounds for each in taken}, {each.batches for each in taken}
    busy = [each.busy for each in taken if each.busy is not None]
    return (
        f"ms/batch{f' of {told}' if told else ''}: after training, one model at a time, in {_range(rounds)} rounds "
        f"with {_range(batches)} training batches a model; median ± interquartile range. Taken on {one.device}, "
        f"{one.threads} thread(s), torch {one.torch}, harness at {one.commit}, {min(each.taken for each in taken)}"
        + (f"; other work took {max(busy):.1f} cores just before." if busy else ".")
    )


def _range(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _names(rows: Iterable[Row], lines: list[Row]) -> str:
    return "; ".join(_name(row, lines) for row in rows)


def _name(row: Row, lines: list[Row]) -> str:
    """A row as a note names it: its head, with what else tells it apart."""
    others = [kind for kind in ("corpus", "backbone") if len({getattr(line, kind) for line in lines}) > 1]
    return ", ".join([row.head, *(getattr(row, kind) for kind in others)])
