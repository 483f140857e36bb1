"""The cells of comparisons: a change of perplexity with its interval, and a p value."""

from harness.report.evidence.findings import percent
from harness.report.table.content import NOTHING, Cell


def change(nats: float, low: float | None, high: float | None, mark: str = "") -> Cell:
    """'-1.3 % [-1.9, -0.7] ***' of a difference in nats; without an interval '-1.3 %'."""
    value = percent(nats)
    if low is None or high is None:
        return Cell(text=f"{value:+.1f} %", value=value)
    bounds = percent(low), percent(high)
    text = f"{value:+.1f} % [{bounds[0]:+.1f}, {bounds[1]:+.1f}] {mark}".strip()
    return Cell(text=text, value=value, interval=bounds, mark=mark)


def probability(value: float | None) -> Cell:
    """'0.031', '< 0.001'; '-' for None."""
    if value is None:
        return Cell(text=NOTHING)
    return Cell(text=f"{value:.3f}" if value >= 0.001 else "< 0.001", value=value)
