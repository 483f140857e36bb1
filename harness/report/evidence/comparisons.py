"""The rows of a table compared with the baseline, and with the best row of their group."""

import math
import statistics
from dataclasses import dataclass
from typing import Literal

from harness.errors import RecordError
from harness.report.evidence.gains import differences
from harness.report.evidence.gather import Evidence
from harness.report.evidence.statistics import Interval, Paired, block_interval, holm, paired, stars, t_test
from harness.report.evidence.table_rows import Row

SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A row compared with the baseline of its group, by test perplexity.

    Args:
        seeds: those for which both have a finished trial, in the order of the suite.
        paired: of the differences of log perplexity over these seeds, row less baseline.
        p_holm: p of the paired t test, corrected by Holm's method over all comparisons of the table; None for one seed.
        stars: of p_holm.
        interval: of the mean difference in nats, row less baseline, over blocks of the test split; only for a single
            shared seed, if both trials stored their token scores.
    """

    row: Row
    baseline: Row
    seeds: tuple[int, ...]
    paired: Paired
    p_holm: float | None
    stars: str
    interval: Interval | None


def compare(lines: list[Row], baseline: str, evidence: Evidence) -> dict[int, Compared]:
    """Index of a row -> its comparison with the baseline.

    The baseline of a group is its first row of that head. It is not compared, nor is a row that shares no seed with it.

    Holm's correction and the stars are of the paired t test: a sign-flip test of 8 seeds has no p below 2 / 256, which
    times ten comparisons is never below 0.05. The p of the sign-flip test is in `paired`, not corrected.
    """
    baselines: dict[tuple[str, str], Row] = {}
    for row in lines:
        if row.trials[0].head.name == baseline:
            baselines.setdefault(row.group, row)
    seeds = {
        index: shared
        for index, row in enumerate(lines)
        if row is not (other := baselines.get(row.group)) and other and (shared := shared_seeds(row, other))
    }
    tests = {index: pair(lines[index], baselines[lines[index].group], shared) for index, shared in seeds.items()}
    tested = {index: test.p_t for index, test in tests.items() if test.p_t is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return {
        index: Compared(
            row=lines[index],
            baseline=(other := baselines[lines[index].group]),
            seeds=seeds[index],
            paired=test,
            p_holm=(p := adjusted.get(index)),
            stars="" if p is None else stars(p, test.n),
            interval=_interval(lines[index], other, seeds[index], evidence),
        )
        for index, test in tests.items()
    }


def ties(lines: list[Row], evidence: Evidence) -> dict[int, Literal["best", "tie"]]:
    """Index of a row -> whether it is the best of its group on its device, or a tie: not distinguishable from the best.

    Rows are ranked by mean test perplexity over the seeds that all of them have. A row alone on its device, or with
    trials on several devices, has no rank.

    Two rows are distinguishable if p of the paired t test is below 0.05 (not corrected, so a tie is declared in doubt)
    or, for one shared seed, if 0 is outside of the block interval. A row that cannot be tested is a tie. If no row can
    be tested, none is ranked. N-grams have no rank, because they have no seeds.
    """
    places: dict[tuple[str, str, str], list[int]] = {}
    for index, row in enumerate(lines):
        devices = {row.records[seed].environment.device for seed in row.ok_seeds}
        if len(devices) == 1 and _scored(row) and not row.is_ngram:
            places.setdefault((*row.group, *devices), []).append(index)
    ranks: dict[int, Literal["best", "tie"]] = {}
    for indices in places.values():
        common = set.intersection(*(set(_scored(lines[index])) for index in indices))
        means = {i: statistics.fmean(lines[i].values("test_ppl", common or _scored(lines[i]))) for i in indices}
        best = min(indices, key=means.__getitem__)
        differs = {index: _differs(lines[index], lines[best], evidence) for index in indices if index != best}
        if any(result is not None for result in differs.values()):
            ranks |= {best: "best"} | {index: "tie" for index, result in differs.items() if not result}
    return ranks


def shared_seeds(row: Row, other: Row) -> tuple[int, ...]:
    """The seeds for which both rows have a finished trial with a test perplexity."""
    theirs = _scored(other)
    return tuple(seed for seed in _scored(row) if seed in theirs)


def pair(row: Row, other: Row, seeds: tuple[int, ...]) -> Paired:
    """Compare the logarithms of test perplexities, row less other. Raises ValueError when there is no seed."""
    return paired(_log_differences(row, other, seeds))


def _log_differences(row: Row, other: Row, seeds: tuple[int, ...]) -> list[float]:
    ours, theirs = (each.values("test_ppl", seeds) for each in (row, other))
    return [math.log(our) - math.log(their) for our, their in zip(ours, theirs, strict=True)]


def _scored(row: Row) -> list[int]:
    """The ok seeds with a test perplexity. A forged one that is not above 0 has no logarithm."""
    return [seed for seed in row.ok_seeds if row.records[seed].metrics.get("test_ppl", 0) > 0]


def _differs(row: Row, best: Row, evidence: Evidence) -> bool | None:
    """Whether a row is distinguishable from the best one; None if there is nothing to test it with."""
    seeds = shared_seeds(row, best)
    if len(seeds) > 1:
        return t_test(_log_differences(row, best, seeds)) < SIGNIFICANT
    interval = _interval(row, best, seeds, evidence)
    return None if interval is None or interval.low is None else not interval.low <= 0 <= interval.high


def _interval(row: Row, other: Row, seeds: tuple[int, ...], evidence: Evidence) -> Interval | None:
    """Row less other over blocks of the test split, for one seed."""
    if len(seeds) != 1:
        return None
    ours, theirs = (evidence.token_scores(each.records[seeds[0]].id) for each in (row, other))
    if ours is None or theirs is None:
        return None
    try:
        return block_interval(differences(theirs, ours).nats)
    except RecordError as misfit:
        evidence.warn(f"{row.records[seeds[0]].id} and {other.records[seeds[0]].id}: {misfit}")
        return None
