"""The ranks of rows: which is the best of its group, and which are behind it."""

import statistics
from itertools import combinations

from harness.plan.comparison import Test
from harness.report.evidence.convergence import collapsed
from harness.report.evidence.multiple import RANK_SEEDS, SIGNIFICANT, holm
from harness.report.evidence.seed_pairs import difference, scored_seeds, shared_seeds
from harness.report.evidence.table_rows import Row
from harness.report.evidence.verdicts import Rank, obstacle

Place = tuple[str, str, str]  # corpus, backbone, device
Pairs = dict[tuple[int, int], bool]  # indices of two rows -> whether the first is better; only pairs that differ


def ranks(lines: list[Row], test: Test) -> dict[int, Rank]:
    """Index of a row -> its rank among the rows of its corpus, backbone and device; rows without a rank are left out.

    Each two rows that share six seeds or more are tested, and the p values are corrected by Holm's method over all
    pairs of the table. So the choice of the best row after its results are known is part of the correction.

    A row without an obstacle (harness.report.evidence.verdicts) is ranked if it has six seeds and another such row is
    there. Of these rows, the one with the lowest mean test perplexity is 'best' if it is better than every other row of
    the place except collapsed ones; if not, it is a 'tie'. The other rows are 'behind' it or a 'tie'. Collapsed rows
    are 'behind'. N-grams, rows of several devices, and rows with a compatibility switch compete with nothing.
    """
    places = _places(lines)
    differ = _differing(lines, places, test)
    found: dict[int, Rank] = {}
    for indices in places.values():
        found |= _of_place(indices, lines, differ)
    return found


def _places(lines: list[Row]) -> dict[Place, list[int]]:
    """The rows that compete with each other."""
    places: dict[Place, list[int]] = {}
    for index, row in enumerate(lines):
        devices = {row.records[seed].environment.device for seed in row.ok_seeds}
        if len(devices) == 1 and scored_seeds(row) and not row.is_ngram and row.compat is None:
            places.setdefault((*row.group, *devices), []).append(index)
    return places


def _differing(lines: list[Row], places: dict[Place, list[int]], test: Test) -> Pairs:
    """The pairs of rows that differ, after correction over all pairs of all places."""
    tested = {}
    for indices in places.values():
        for a, b in combinations([index for index in indices if not collapsed(lines[index])], 2):
            seeds = shared_seeds(lines[a], lines[b])
            if len(seeds) >= RANK_SEEDS:
                tested[a, b] = difference(lines[a], lines[b], seeds, test)
    adjusted = holm([found.p_t for found in tested.values()])
    one_way = {
        pair: found.mean < 0 for (pair, found), p in zip(tested.items(), adjusted, strict=True) if p < SIGNIFICANT
    }
    return one_way | {(b, a): not better for (a, b), better in one_way.items()}


def _of_place(indices: list[int], lines: list[Row], differ: Pairs) -> dict[int, Rank]:
    ranked = [i for i in indices if not obstacle(lines[i]) and len(scored_seeds(lines[i])) >= RANK_SEEDS]
    if len(ranked) < 2:
        return {}
    best = min(ranked, key=lambda index: statistics.fmean(lines[index].values("test_ppl")))
    last = [index for index in indices if collapsed(lines[index])]
    alone = all(differ.get((best, other), False) for other in indices if other != best and other not in last)
    found: dict[int, Rank] = {best: "best" if alone else "tie"}
    found |= {other: "behind" if differ.get((best, other), False) else "tie" for other in ranked if other != best}
    return found | dict.fromkeys(last, "behind")
