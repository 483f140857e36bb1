"""The ranks of rows: which is the best of its group, and which are behind it."""

import math
import statistics
from collections import Counter
from itertools import combinations

from harness.plan.suite_file import Test
from harness.report.content import Rank
from harness.report.convergence import collapsed
from harness.report.grouping import grouped
from harness.report.row_facts import RowFacts
from harness.report.statistics import (
    RANK_SEEDS,
    RANK_SIGNIFICANT,
    SIGNIFICANT,
    MeanDifference,
    equivalence,
    holm,
)
from harness.report.verdicts import competes, difference, nats, obstacle, scored_seeds, shared_seeds

Division = tuple[str, str, str]  # corpus, backbone, device

# Two rows, first less second, and p corrected over all pairs of the table.
Pair = tuple[MeanDifference, float]
Pairs = dict[tuple[RowFacts, RowFacts], Pair]  # in both orders; only of those that can be tested


def ranks(lines: list[RowFacts], test: Test, margin: float, without_point: int = 0) -> dict[RowFacts, Rank]:
    """The rank of each row among the rows of its corpus, backbone and device; rows without a rank
    are left out.

    A row without an obstacle (harness.report.verdicts) is ranked if it has six seeds and another
    such row is there. Of these rows, the lowest is the one with the lowest mean test perplexity.

    It is 'best' if it is better than every other row of the place: p below 0.05 in each test,
    corrected by Holm's method over these rows; and equivalent to none: no difference is shown to be
    within the margin. The others are then 'behind'. So the choice of the row after its results are
    known is harmless: of equal rows, only one that is better than all others by chance would be
    called the best.

    Otherwise the lowest row is a 'tie'. Another row is 'behind' if p is below 0.025, corrected over
    all pairs of rows of the table because any row could have been the lowest, and it is not
    equivalent to the lowest; and a 'tie' if not.

    Rows that are not ranked are tested like the others, so that one that may be better prevents a
    best row; a row that shares fewer than six seeds prevents it, too, also if it has none: not run,
    not tuned, or all of its trials failed. The corrections count the tests that such rows lack with
    p = 1. Collapsed rows are not tested; they are 'behind'. N-grams, rows of several devices, and
    rows with a compatibility switch compete with nothing.

    Args:
        margin: the smallest relative difference of interest.
        without_point: the number of rows that are not in `lines` because no point is chosen for
            them.
    """
    places, unscored = _places(lines), _unscored(lines)
    # A row without a result has no device yet, so it may belong to any place of its group.
    lacking = {place: unscored[place[:2]] + without_point for place in places}
    pairs = _pairs(places, test, lacking)
    found: dict[RowFacts, Rank] = {}
    for place, rows in places.items():
        found |= _of_place(rows, pairs, nats(margin), lacking[place])
    return found


def rankable(row: RowFacts) -> bool:
    """Whether a row can have a rank at all: nothing prevents its judgement, and it has six seeds or
    more.
    """
    return not obstacle(row) and len(scored_seeds(row)) >= RANK_SEEDS


def _places(lines: list[RowFacts]) -> dict[Division, list[RowFacts]]:
    """The rows that compete, by their place; one of several devices has none."""
    pairs = []
    for row in lines:
        devices = {record.environment.device for record in row.ok}
        if len(devices) == 1 and scored_seeds(row) and competes(row):
            pairs.append(((*row.group, *devices), row))
    return grouped(pairs)


def _unscored(lines: list[RowFacts]) -> Counter[tuple[str, str]]:
    """Corpus and backbone -> the number of its competing rows without any finished trial with a
    test perplexity.
    """
    found: Counter[tuple[str, str]] = Counter()
    for row in lines:
        if competes(row) and not row.invalid and not scored_seeds(row):
            found[row.group] += 1
    return found


def _pairs(places: dict[Division, list[RowFacts]], test: Test, lacking: dict[Division, int]) -> Pairs:
    """The tests of each two rows of a place that share six seeds or more and are not collapsed."""
    tested, planned = {}, 0
    for place, rows in places.items():
        competing = [row for row in rows if not collapsed(row)]
        planned += math.comb(len(competing) + lacking[place], 2)
        for a, b in combinations(competing, 2):
            if len(seeds := shared_seeds(a, b)) >= RANK_SEEDS:
                tested[a, b] = difference(a, b, seeds, test)
    adjusted = holm([found.p_settled for found in tested.values()], planned - len(tested))
    pairs = {}
    for ((a, b), found), p in zip(tested.items(), adjusted, strict=True):
        pairs[a, b] = found, p
        pairs[b, a] = found.reverse, p
    return pairs


def _of_place(rows: list[RowFacts], pairs: Pairs, margin: float, lacking: int) -> dict[RowFacts, Rank]:
    """The ranks of the rows of a place.

    Args:
        margin: in nats.
        lacking: the number of further rows, which have no finished trial.
    """
    ranked = list(filter(rankable, rows))
    if len(ranked) < 2:
        return {}
    lowest = min(ranked, key=lambda row: statistics.fmean(row.values("test_ppl")))
    last = list(filter(collapsed, rows))
    against = []
    for other in rows:
        if other is not lowest and other not in last:
            against.append(pairs.get((lowest, other)))
    if not lacking and _is_best(against, margin):
        return dict.fromkeys([*ranked, *last], "behind") | {lowest: "best"}
    found: dict[RowFacts, Rank] = dict.fromkeys(last, "behind") | {lowest: "tie"}
    for other in ranked:
        if other is not lowest:
            pair = pairs.get((lowest, other))
            differs = pair is not None and pair[1] < RANK_SIGNIFICANT
            found[other] = "behind" if differs and not _is_equivalent(pair, margin) else "tie"
    return found


def _is_best(against: list[Pair | None], margin: float) -> bool:
    """Whether a row is better than each of some others, and not by less than is of interest. None:
    there is no test of it.
    """
    for pair in against:
        if pair is None or pair[0].mean >= 0 or _is_equivalent(pair, margin):
            return False
    return max(holm([difference.p_settled for difference, _ in against])) < SIGNIFICANT


def _is_equivalent(pair: Pair, margin: float) -> bool:
    """Whether the difference is shown to be within the margin. Not corrected: no row is the best
    where a verdict says 'equivalent'.
    """
    return equivalence(pair[0], margin) < SIGNIFICANT
