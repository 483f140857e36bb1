"""The cells of comparisons: a change of perplexity with its interval, and a p value."""

import math

from harness.report.evidence.comparisons import Compared
from harness.report.evidence.findings import BLOCKS_MARK, percent
from harness.report.evidence.statistics import WIDEST
from harness.report.table.content import NOTHING, Cell

TOO_WIDE = "[too wide]"


def change(nats: float, low: float | None, high: float | None, mark: str = "") -> Cell:
    """'-1.3 % [-1.9, -0.7] ***' of a difference in nats; without an interval '-1.3 %'.

    An interval whose ends are further apart than by the factor WIDEST is not written out: '-1.3 % [too wide]'.
    """
    value = percent(nats)
    if low is None or high is None:
        return Cell(text=f"{value:+.1f} %", value=value)
    bounds = percent(low), percent(high)
    shown = TOO_WIDE if high - low > math.log(WIDEST) else f"[{bounds[0]:+.1f}, {bounds[1]:+.1f}]"
    text = f"{value:+.1f} % {shown} {mark}".strip()
    return Cell(text=text, value=value, interval=bounds, mark=mark)


def against(compared: Compared) -> Cell:
    """The change of test perplexity against the baseline, with its interval if there is one."""
    difference, blocks = compared.difference, compared.interval
    if difference.low is None and blocks is not None:
        return change(difference.mean, blocks.low, blocks.high, BLOCKS_MARK)
    return change(difference.mean, difference.low, difference.high, compared.stars)


def probability(value: float | None) -> Cell:
    """'0.031', '< 0.001'; '-' for None."""
    if value is None:
        return Cell(text=NOTHING)
    return Cell(text=f"{value:.3f}" if value >= 0.001 else "< 0.001", value=value)
