"""The ladders of a suite: what its rows at several sizes say of each head."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.flops import Flops
from harness.ladder.drawn_means import Losses, means
from harness.ladder.gains import Gain, Trend, gains_and_trend
from harness.ladder.worth import Axis, Share, Worth, shares, worths
from harness.plan.lengths import targets_of_epoch
from harness.plan.suite import Suite
from harness.records.sidecars import Timing
from harness.report.content import COARSE
from harness.report.findings import Findings
from harness.report.grouping import grouped
from harness.report.row_facts import RowFacts, of_head, time_of
from harness.report.statistics import SIGNIFICANT
from harness.report.verdicts import (
    DISAGREES,
    LIMITS,
    STRONGEST,
    competes,
    difference,
    logarithms,
    nats,
    obstacle,
    shared_seeds,
    splits_disagree,
)

AxisName = Literal["N", "C", "T"]
AXES: tuple[AxisName, ...] = ("N", "C", "T")
PAIRED = "paired"  # a ladder compares shared seeds, whatever test a suite has for its tables


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeadOnLadder:
    """A head at all sizes of a ladder.

    Args:
        rows: small to large; None at a size whose trials are not planned yet.
        gains: the loss of the strongest control of the size less the head's.
        trend: on log2 N; None for fewer than two sizes with a gain.
        worth: of each axis that is known, by size.
        shares: of the controls' step to the next size, by size.
        obstacle: why nothing is decided; '' where nothing prevents it.
        limits: what limits its words, as in a verdict of a table: 'coarse tuning', 'not converged'.
    """

    name: str
    is_control: bool
    rows: tuple[RowFacts | None, ...]
    gains: tuple[Gain, ...]
    trend: Trend | None
    worth: dict[AxisName, tuple[Worth | None, ...]]
    shares: tuple[Share | None, ...]
    obstacle: str = ""
    limits: tuple[str, ...] = ()

    def number(self, word: str) -> int:
        """The number of sizes whose gain has a word."""
        return sum(gain.word == word for gain in self.gains)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ladder:
    """The heads of one corpus and backbone at several sizes.

    Args:
        sizes: the names of the backbone at its sizes, small to large.
        numbers: N of each size.
        baseline: the row of each size with which heads are compared: the control with the lowest mean loss there.
        heads: all of them, in the order of the suite.
    """

    corpus: str
    sizes: tuple[str, ...]
    numbers: tuple[int, ...]
    baseline: tuple[RowFacts, ...]
    heads: tuple[HeadOnLadder, ...]

    @property
    def reference(self) -> str:
        """The name of the baseline, if it is one at all sizes; else 'the strongest control'."""
        names = {row.head for row in self.baseline}
        return names.pop() if len(names) == 1 else f"the {STRONGEST}"

    @property
    def losses(self) -> list[Losses]:
        """Those of the baseline, by size."""
        return [losses_of(row) for row in self.baseline]


def of_findings(findings: Findings) -> list[Ladder]:
    """Return the ladders of a suite with all of their sizes; [] of a suite without `ladder`, and before a control has a
    result at every size.
    """
    suite = findings.evidence.suite
    if suite.ladder is None:
        return []
    named = [row for row in findings.rows if competes(row) and row.planned is not None and row.planned.size]
    families = grouped((row.planned.family[:2], row) for row in named)
    found = [_ladder(family, rows, findings) for family, rows in families.items()]
    return [each for each in found if each is not None]


def _ladder(family: tuple[str, str], rows: list[RowFacts], findings: Findings) -> Ladder | None:
    suite, sizes = findings.evidence.suite, len(findings.evidence.suite.ladder.sizes)
    by_head: dict[str, list[RowFacts | None]] = {}
    for row in rows:
        by_head.setdefault(row.head, [None] * sizes)[row.planned.size - 1] = row
    controls = _controls(suite, family, list(by_head), rows)
    baseline = []
    for size in range(sizes):
        of_size = [by_head[name][size] for name in controls if name in by_head]
        measured = [row for row in of_size if row is not None and losses_of(row)]
        if not measured:
            return None
        baseline.append(min(measured, key=lambda row: statistics.fmean(losses_of(row).values())))
    why = ""  # a control that has no result may be the strongest one
    for name in controls:
        why = why or _obstacle_of(by_head.get(name, [None] * sizes), baseline, name)
    others = max(1, len(by_head) - len(controls))
    made = []
    for name, found in by_head.items():
        about = {"name": name, "is_control": name in controls, "others": others, "prevented": why}
        made.append(_head(tuple(found), tuple(baseline), findings, **about))
    return Ladder(
        corpus=rows[0].corpus,
        sizes=tuple(row.backbone for row in baseline),
        numbers=tuple(row.planned.non_embedding for row in baseline),
        baseline=tuple(baseline),
        heads=tuple(made),
    )


def _controls(suite: Suite, family: tuple[str, str], heads: list[str], rows: list[RowFacts]) -> list[str]:
    """The names of the controls that the suite plans for a ladder, with a result or not, and of its baseline; of the
    baseline alone where all heads are controls.
    """
    planned = [row for row in suite.rows if row.size is not None and row.family[:2] == family]
    named = [row.head for row in of_head(rows, suite.table.baseline)]
    found = [*named, *(row.head.name for row in planned if row.is_control)]
    return list(dict.fromkeys(named if set(heads) <= set(found) else found))


def _head(
    rows: tuple[RowFacts | None, ...],
    baseline: tuple[RowFacts, ...],
    findings: Findings,
    *,
    name: str,
    is_control: bool,
    others: int,
    prevented: str,
) -> HeadOnLadder:
    timings, margin = findings.evidence.timings, nats(findings.evidence.suite.table.margin)
    found = means([losses_of(row) for row in baseline], [{} if row is None else losses_of(row) for row in rows])
    sizes = [float(row.planned.non_embedding) for row in baseline]
    gains, trend = gains_and_trend(sizes, found, margin=margin, heads=others)
    worth = {}
    for axis in AXES:
        theirs = [taken(row, axis, timings) for row in baseline]
        ours = [None if row is None else taken(row, axis, timings) for row in rows]
        if None not in theirs and None not in ours:
            worth[axis] = worths(Axis(baseline=theirs, head=ours), found)
    return HeadOnLadder(
        name=name,
        is_control=is_control,
        rows=rows,
        gains=gains,
        trend=trend,
        worth=worth,
        shares=shares(found),
        obstacle=_obstacle_of(rows, baseline, "") or prevented or _disagreement(rows, baseline),
        limits=_limits(rows, baseline, gains, others),
    )


def _obstacle_of(rows: Sequence[RowFacts | None], baseline: Sequence[RowFacts], name: str) -> str:
    """Why nothing is decided of a row at the first size where it is so: 'seeds missing at lstm 80k'; '' for none."""
    for row, control in zip(rows, baseline, strict=True):
        why = "tuning missing" if row is None else obstacle(row)
        if why and why not in LIMITS:
            return f"{why}{f' of {name}' if name else ''} at {control.backbone}"
    return ""


def _disagreement(rows: Sequence[RowFacts | None], baseline: Sequence[RowFacts]) -> str:
    """That validation says the contrary at a size; '' where it does not."""
    for row, control in zip(rows, baseline, strict=True):
        if row is not None and row is not control and splits_disagree(row, control, PAIRED):
            return f"{DISAGREES} at {control.backbone}"
    return ""


def _limits(
    rows: Sequence[RowFacts | None], baseline: Sequence[RowFacts], gains: Sequence[Gain], others: int
) -> tuple[str, ...]:
    found = {}
    for row, control, gain in zip(rows, baseline, gains, strict=True):
        if row is None or row is control:
            continue
        seeds = shared_seeds(row, control)
        settled = difference(row, control, seeds, PAIRED).p_settled if len(seeds) > 1 else None
        if gain.word in ("better", "worse") and settled is not None and others * settled >= SIGNIFICANT:
            found[COARSE] = None
        found |= dict.fromkeys(why for why in (obstacle(row), obstacle(control)) if why in LIMITS)
    return tuple(found)


def losses_of(row: RowFacts) -> Losses:
    """The mean nll of the test split of each ok seed, in nats."""
    seeds = tuple(row.ok_seeds)
    return dict(zip(seeds, logarithms(row, seeds), strict=True))


def taken(row: RowFacts, axis: AxisName, timings: dict[str, Timing]) -> float | None:
    """What a trial of a row takes to train: N; C in FLOPs; T in seconds, of an exclusive pass. None if it is not
    known.
    """
    planned, train = row.planned, row.spec.train
    if axis == "N":
        return float(planned.non_embedding)
    known = row.values("train_tokens")
    counts = planned.facts.num_tokens or ({"train": int(known[0])} if known else None)
    if counts is None:
        return None
    targets = train.most_epochs * targets_of_epoch(train, counts["train"])
    if axis == "C":
        return targets * planned.flops.total if isinstance(planned.flops, Flops) else None
    time = time_of(row, "train_ms_per_batch", timings)
    of_batch = train.batch_size * train.batch_shape[1]
    return targets / of_batch * time.value / 1e3 if time is not None and time.exclusive else None
