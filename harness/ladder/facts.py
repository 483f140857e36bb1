"""The ladders of a suite: what its rows at several sizes say of each head."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.ladder.drawn_means import Losses, means
from harness.ladder.gains import Gain, Trend, gains_and_trend
from harness.ladder.worth import Axis, Share, Worth, shares, worths
from harness.plan.lengths import targets_of_epoch
from harness.records.sidecars import Timing
from harness.report.findings import Findings
from harness.report.grouping import grouped
from harness.report.row_facts import RowFacts, time_of
from harness.report.verdicts import LIMITS, logarithms, nats, obstacle

AxisName = Literal["N", "C", "T"]
AXES: dict[AxisName, str] = {"N": "parameters", "C": "compute", "T": "time"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeadOnLadder:
    """A head at all sizes of a ladder.

    Args:
        rows: small to large; None at a size whose trials are not planned yet.
        gains: the baseline's loss less the head's, by size.
        trend: on log2 N; None for fewer than two sizes with a gain.
        worth: of each axis that is known, by size.
        shares: of the baseline's step to the next size, by size.
        obstacle: why nothing is decided, with its size; '' where nothing prevents it.
    """

    name: str
    rows: tuple[RowFacts | None, ...]
    gains: tuple[Gain, ...]
    trend: Trend | None
    worth: dict[AxisName, tuple[Worth | None, ...]]
    shares: tuple[Share | None, ...]
    obstacle: str = ""

    @property
    def better(self) -> int:
        """The number of sizes at which it is better."""
        return sum(gain.word == "better" for gain in self.gains)

    @property
    def worse(self) -> int:
        """The number of sizes at which it is worse."""
        return sum(gain.word == "worse" for gain in self.gains)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ladder:
    """The heads of one corpus and backbone at several sizes.

    Args:
        sizes: the names of the backbone at its sizes, small to large.
        numbers: N of each size.
        baseline: the row of each size with which heads are compared: those of the control with the lowest
            mean loss over all sizes.
        controls: the names of all controls.
        heads: the others, in the order of the suite.
    """

    corpus: str
    sizes: tuple[str, ...]
    numbers: tuple[int, ...]
    baseline: tuple[RowFacts, ...]
    controls: tuple[str, ...]
    heads: tuple[HeadOnLadder, ...] = field(default=())

    @property
    def reference(self) -> str:
        """The name of the baseline."""
        return self.baseline[0].head

    @property
    def losses(self) -> list[Losses]:
        """Those of the baseline, by size."""
        return [losses_of(row) for row in self.baseline]


def of_findings(findings: Findings) -> list[Ladder]:
    """Return the ladders of a suite with all of their sizes; [] of a suite without `ladder`, and before every size of a
    control has a result.
    """
    suite = findings.evidence.suite
    if suite.ladder is None:
        return []
    named = [row for row in findings.rows if not row.is_ngram and row.planned is not None and row.planned.size]
    families = grouped(((row.corpus, row.planned.family[1]), row) for row in named)
    found = [_ladder(rows, len(suite.ladder.sizes), findings) for rows in families.values()]
    return [each for each in found if each is not None]


def _ladder(rows: list[RowFacts], sizes: int, findings: Findings) -> Ladder | None:
    by_head: dict[str, list[RowFacts | None]] = {}
    for row in rows:
        by_head.setdefault(row.head, [None] * sizes)[row.planned.size - 1] = row
    known = {row for group in findings.controls.values() for row in group}
    controls = {name: found for name, found in by_head.items() if known.issuperset(filter(None, found))}
    baseline = _strongest(controls.values())
    if baseline is None:
        return None
    timings, margin = findings.evidence.timings, nats(findings.evidence.suite.table.margin)
    heads = []
    for name, found in by_head.items():
        if name != baseline[0].head:
            heads.append(_head(name, tuple(found), baseline, timings, margin))
    return Ladder(
        corpus=rows[0].corpus,
        sizes=tuple(row.backbone for row in baseline),
        numbers=tuple(row.planned.non_embedding for row in baseline),
        baseline=baseline,
        controls=tuple(controls),
        heads=tuple(heads),
    )


def _strongest(controls: Iterable[Sequence[RowFacts | None]]) -> tuple[RowFacts, ...] | None:
    """The control with the lowest mean loss over all sizes; None if no control has a result at each."""
    lowest, found = math.inf, None
    for rows in controls:
        losses = [losses_of(row) for row in rows if row is not None]
        if len(losses) == len(rows) and all(losses):
            mean = statistics.fmean(statistics.fmean(each.values()) for each in losses)
            if mean < lowest:
                lowest, found = mean, tuple(row for row in rows if row is not None)
    return found


def _head(
    name: str,
    rows: tuple[RowFacts | None, ...],
    baseline: tuple[RowFacts, ...],
    timings: dict[str, Timing],
    margin: float,
) -> HeadOnLadder:
    found = means([losses_of(row) for row in baseline], [{} if row is None else losses_of(row) for row in rows])
    sizes = [float(row.planned.non_embedding) for row in baseline]
    gains, trend = gains_and_trend(sizes, found, margin=margin)
    worth = {}
    for axis in AXES:
        theirs = [taken(row, axis, timings) for row in baseline]
        ours = [None if row is None else taken(row, axis, timings) for row in rows]
        if None not in theirs and None not in ours:
            worth[axis] = worths(Axis(baseline=theirs, head=ours), found)
    prevented = [_obstacle(row) or _obstacle(control) for row, control in zip(rows, baseline, strict=True)]
    first = next((index for index, why in enumerate(prevented) if why), None)
    why = "" if first is None else f"{prevented[first]} at {baseline[first].backbone}"
    return HeadOnLadder(name=name, rows=rows, gains=gains, trend=trend, worth=worth, shares=shares(found), obstacle=why)


def _obstacle(row: RowFacts | None) -> str:
    if row is None:
        return "tuning missing"
    why = obstacle(row)
    return "" if why in LIMITS else why


def losses_of(row: RowFacts) -> Losses:
    """The mean nll of the test split of each ok seed, in nats."""
    seeds = tuple(row.ok_seeds)
    return dict(zip(seeds, logarithms(row, seeds), strict=True))


def taken(row: RowFacts, axis: AxisName, timings: dict[str, Timing]) -> float | None:
    """What a trial of a row takes to train: N; C in FLOPs; T in seconds, of an exclusive pass. None if it is not
    known.
    """
    if axis == "N":
        return float(row.planned.non_embedding)
    train, counts = row.trials[0].train, row.planned.facts.num_tokens
    known = row.values("train_tokens")
    number = counts["train"] if counts else (int(known[0]) if known else None)
    if number is None:
        return None
    targets = train.epochs * targets_of_epoch(train, number)
    if axis == "C":
        flops = row.values("mflop_per_token")
        return targets * 1e6 * flops[0] if flops else None
    time = time_of(row, "train_ms_per_batch", timings)
    rows, tokens = train.batch_size, train.batch_shape[1]
    return targets / (rows * tokens) * time.value / 1e3 if time is not None and time.exclusive else None
