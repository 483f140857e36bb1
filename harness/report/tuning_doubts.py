"""Whether rows were tuned alike, and how much lower each may be between the values that tuning tried."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from harness.plan.specs import as_number
from harness.plan.suite import Row, Suite
from harness.plan.tuning import Axis, Choice, point_text
from harness.records.choices import of_records
from harness.records.record import TrialRecord

RATE = "train.lr"
Tried = tuple[float, float | None]  # a value and the log validation perplexity there; None: the trial failed


class Tuned(NamedTuple):
    """The tuning of a row.

    Args:
        doubt: why it was not that of the other rows; '' if it was.
        gap: how much lower its log perplexity may be at values between those that were tried, in nats.
    """

    doubt: str = ""
    gap: float = 0.0


def doubts_of(suite: Suite, records: Mapping[str, TrialRecord]) -> dict[Row, Tuned]:
    """The tuning of each row that has a point; {} without `tune`. There is a doubt where

    - a row had fewer tuning trials than another one: a key of the space does not apply to it, and a grid over that key
      gives the other rows more attempts;
    - the point that is used is not the one that the records of the tuning trials give. Nothing is known of it then, and
      the gap is infinite.

    Args:
        records: of the tuning trials, by id; where some of a row are missing, its stored choice counts.
    """
    found, most = {}, max((len(row.candidates) for row in suite.tuned_rows), default=0)
    for row in suite.tuned_rows:
        choice = row.choice
        if choice is None or choice.trial is None:
            continue
        attempts, now = len(row.candidates), of_records(row, records) or choice
        doubts, gap = [], of_row(row, now, row.tune.space) if now.trial == choice.trial else math.inf
        if attempts < most:
            doubts.append(f"{attempts} of the {most} tuning trials of another row")
        if now.trial != choice.trial:
            doubts.append(f"not the best of its tuning trials, which is {point_text(now.point) or 'no point'}")
        found[row] = Tuned("; ".join(doubts), gap)
    # Of a learning rate that follows from other sizes nothing was tried beside it.
    return found | {row: Tuned(gap=math.inf) for row in suite.rows if row.follows is not None and row.trials}


def of_row(row: Row, choice: Choice, space: Mapping[str, Axis]) -> float:
    """The sum of the gaps of all keys whose values are in an order (`Axis.ordered`), in nats.

    The gap of a key is that of the trials that compare with the chosen one (`Row.compared`) and agree with it in
    the other keys, over the logarithm of the value, or over the value itself for a `uniform` range and for values that
    are not above 0. Of two ranges no two trials agree, so that nothing is known and the gap is infinite. So it is for a
    learning rate, also that of a group, with two values, or with a `choice`.

    Where 0 is the lowest value and the best one, as a dropout of 0, there is nothing below it to try, so it is not at
    an end: the curve is continued as its mirror image, as if the negative of the next value had its perplexity.
    """
    found, compared = 0.0, row.compared(choice)
    for key, best in choice.point.items():
        if (key == RATE or (key.startswith("train.groups.") and key.endswith(".lr"))) and not space[key].ordered:
            return math.inf
        if space[key].ordered:
            alike = [each for each in compared if {**each[0], key: best} == choice.point]
            best, values = as_number(best), [as_number(point[key]) for point, _ in alike]
            logarithmic = space[key].uniform is None and min(values) > 0
            ppl = [choice.valid_ppl[trial.id] for _, trial in alike]
            places = [
                (math.log(value) if logarithmic else value, None if y is None else math.log(y))
                for value, y in zip(values, ppl, strict=True)
            ]
            if best == min(values) == 0:
                x, y = min(place for place in places if place[0] > 0)
                places.append((-x, y))
            found += of_curve(places, math.log(best) if logarithmic else best)
    return found


def of_curve(places: list[Tried], best: float) -> float:
    """How far a parabola may go below its lowest known point.

    With (x1, y1) this point, (x0, y0) and (x2, y2) its neighbours, h1 = x1 - x0 and h2 = x2 - x1 the distances, the
    minimum is at most half of a distance away, or a neighbour would be lower. So

        gap = max( (y0 - y1) h2^2 / (4 h1 (h1 + h2)),  (y2 - y1) h1^2 / (4 h2 (h1 + h2)) )

    For equal distances this is an eighth of the larger rise. Infinite where the lowest point is the first or the last
    one, or a neighbour failed: how low the curve is there is not known.
    """
    ordered = sorted(places, key=lambda place: place[0])
    at = [x for x, _ in ordered].index(best)
    if at in (0, len(ordered) - 1):
        return math.inf
    (x0, y0), (x1, y1), (x2, y2) = ordered[at - 1 : at + 2]
    if y0 is None or y2 is None:
        return math.inf
    before, after = x1 - x0, x2 - x1
    to_the_right = (y0 - y1) * after**2 / (4 * before * (before + after))
    to_the_left = (y2 - y1) * before**2 / (4 * after * (before + after))
    return max(to_the_right, to_the_left)
