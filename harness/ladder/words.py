"""What the ladders of a suite say, in sentences."""

import math
from collections.abc import Sequence

from harness.ladder import printed
from harness.ladder.drawn_means import Estimate
from harness.ladder.facts import HeadOnLadder, Ladder, of_findings
from harness.ladder.gains import fraction
from harness.ladder.worth import Worth
from harness.report.findings import Findings
from harness.report.row_facts import RowFacts

MOST = 6  # heads in a text
AHEAD = {
    "shrinks": "the gain shrinks with size",
    "holds": "the gain holds",
    "grows": "the gain grows with size",
}
BEHIND = {
    "shrinks": "it falls further behind with size",
    "holds": "the gap holds",
    "grows": "it catches up with size",
}
WORTH = {"N": "{} times the parameters", "C": "{} times the compute", "T": "{} times the time"}


def sentences(findings: Findings, rows: Sequence[RowFacts]) -> list[str]:
    """What the ladders of a suite say of some rows, a few sentences for each head, and what printed numbers
    say; [] without a ladder."""
    found, ladders = [], of_findings(findings)
    for ladder in ladders:
        heads = [head for head in ladder.heads if any(row in rows for row in head.rows)]
        said = [of_head(ladder, head) for head in heads if head.name not in ladder.controls][:MOST]
        if len(ladders) > 1 and said:
            said[0] = f"On {ladder.corpus} with {ladder.sizes[0]} to {ladder.sizes[-1]}: {said[0]}"
        found += said
    return [*found, *printed.sentences(findings, rows)]


def of_head(ladder: Ladder, head: HeadOnLadder) -> str:
    """'MoS 2 beats softmax at 3 of 3 sizes, by 2.9, 2.1 and 1.4 %; the gain shrinks with size (...). ...'."""
    sizes, against = len(head.gains), _against(ladder)
    if head.obstacle:
        return f"{head.name}: nothing is decided, because of {head.obstacle}."
    if not head.better and not head.worse:
        return f"{head.name}: no difference to {against} is shown at any of {sizes} sizes."
    changes = _listed([percents(gain.difference.mean) for gain in head.gains if gain.difference is not None])
    if head.better and head.worse:
        first = f"{head.name} is better than {against} at {head.better} and worse at {head.worse} of {sizes} sizes"
        first += f" (gains of {changes} %)"
    elif head.better:
        first = f"{head.name} beats {against} at {head.better} of {sizes} sizes, by {changes} %"
    else:
        lost = changes.replace("-", "")
        first = f"{head.name} is worse than {against} at {head.worse} of {sizes} sizes, by {lost} %"
    return ". ".join([f"{first}; {trend_text(head)}", *_at_the_largest(head)]) + "."


def _against(ladder: Ladder) -> str:
    return f"{ladder.reference} (the strongest control)" if len(ladder.controls) > 1 else ladder.reference


def trend_text(head: HeadOnLadder) -> str:
    """'the gain shrinks with size (-0.7 % for each doubling [-1.0, -0.4])'."""
    trend = head.trend
    if trend is None or trend.low is None or trend.high is None:
        return "how the gain changes with size is not known, with one seed"
    change = f"{percents(trend.slope, sign=True)} % for each doubling of the parameters"
    ends = f"[{percents(trend.low, sign=True)}, {percents(trend.high, sign=True)}], {trend.sizes} sizes"
    if trend.word == "undecided":
        return f"whether the gain changes with size is undecided ({change} {ends})"
    words = BEHIND if head.worse and not head.better else AHEAD
    return f"{words[trend.word]} ({change} {ends})"


def _at_the_largest(head: HeadOnLadder) -> list[str]:
    """'At the largest size it is worth 1.3 times the parameters [1.1, 1.5] and costs 1.5 times the time: 0.8 times as
    fast to the same loss'; [] where the straight lines and the power law do not agree on the word.
    """
    of_size = {axis: found[-1] for axis, found in head.worth.items()}
    worth = of_size.get("N")
    if worth is None or worth.word == "undecided":
        return []
    said = f"At the largest size it is worth {worth_text(worth)} times the parameters"
    for axis in ("T", "C"):
        cost = of_size.get(axis)
        if cost is not None:
            what = "as fast" if axis == "T" else "the compute"
            said += f" and costs {WORTH[axis].format(f'{cost.cost:.2g}')}"
            said += f": {worth_text(cost)} times {what} to the same loss"
            break
    return [said]


def worth_text(worth: Worth) -> str:
    """'1.3 [1.1, 1.5]', or 'more than 2.0' beyond the sizes."""
    best = worth.best
    if math.isinf(best.value):
        return f"more than {worth.highest:.1f}"
    if best.value == 0:
        return f"less than {worth.lowest:.1f}"
    return f"{best.value:.2f}{_ends(best, worth)}"


def _ends(found: Estimate, worth: Worth) -> str:
    if found.low is None or found.high is None:
        return ""
    low = f"{found.low:.2f}" if found.low > 0 else f"below {worth.lowest:.2f}"
    high = f"above {worth.highest:.2f}" if math.isinf(found.high) else f"{found.high:.2f}"
    return f" [{low}, {high}]"


def percents(nats: float, *, sign: bool = False) -> str:
    """A gain in nats as a change of perplexity in per cent: '2.9', or '+2.9' with `sign`."""
    return number_text(100 * fraction(nats), sign=sign)


def number_text(value: float, *, sign: bool = False) -> str:
    """A number of per cent with one digit after the point; a small one with two."""
    digits = 1 if abs(value) >= 0.95 else 2
    value = round(value, digits) + 0.0  # without the sign of -0.00
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def _listed(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
