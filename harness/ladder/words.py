"""What the ladders of a suite say, in sentences."""

import math
from collections.abc import Iterable, Sequence

from harness.ladder import printed
from harness.ladder.facts import HeadOnLadder, Ladder, of_findings
from harness.ladder.gains import fraction
from harness.ladder.worth import Worth
from harness.printable import counted
from harness.report.findings import Findings
from harness.report.row_facts import RowFacts
from harness.report.verdicts import STRONGEST

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
BEHIND_IN_BRIEF = {"shrinks": "falls further behind", "holds": "gap holds", "grows": "catches up"}
SAME = 0.05  # a cost that differs by less is as much


def sentences(findings: Findings, rows: Sequence[RowFacts]) -> list[str]:
    """What the ladders of a suite say of some rows, a few sentences for each head, and what printed numbers
    say; [] without a ladder.
    """
    found, ladders = [], of_findings(findings)
    for ladder in ladders:
        heads = []
        for head in ladder.heads:
            if not head.is_control and any(row in rows for row in head.rows):
                heads.append(head)
        named = heads if len(heads) <= MOST else sorted(heads, key=_last_gain, reverse=True)[:MOST]
        said = [of_head(ladder, head) for head in named]
        if len(heads) > len(named):
            said.append(f"{counted(len(heads) - len(named), 'head')} with smaller gains are in the table.")
        if len(ladders) > 1:
            where = f"On {ladder.corpus} with {ladder.sizes[0]} to {ladder.sizes[-1]}: "
            said = [where + " ".join(said)] if said else []
        found += said
    return [*found, *printed.sentences(findings, rows)]


def _last_gain(head: HeadOnLadder) -> float:
    found = head.gains[-1].difference
    return -math.inf if found is None else found.mean


def of_head(ladder: Ladder, head: HeadOnLadder) -> str:
    """'MoS 2 beats softmax at 3 of 3 sizes, by 2.9, 2.1 and 1.4 %; the gain shrinks with size (...). ...'."""
    sizes, against = len(head.gains), _against(ladder)
    if head.obstacle:
        return f"{head.name}: nothing is decided: {head.obstacle}."
    better, worse, same = map(head.number, ("better", "worse", "equivalent"))
    if not better and not worse and not same:
        return f"{head.name}: no difference to {against} is shown at any of {sizes} sizes."
    gains = [gain.difference.mean for gain in head.gains if gain.difference is not None]
    if better == sizes:
        first = f"{head.name} beats {against} at {sizes} of {sizes} sizes, by {_listed(map(percents, gains))} %"
    elif worse == sizes:
        lost = [percents(gain).removeprefix("-") for gain in gains]
        first = f"{head.name} is worse than {against} at {sizes} of {sizes} sizes, by {_listed(lost)} %"
    else:
        of_words = (("better than", better), ("worse than", worse), ("equivalent to", same))
        counts = [f"{word} {against} at {number}" for word, number in of_words if number]
        signed = _listed(percents(gain, sign=True) for gain in gains)
        first = f"{head.name} is {_listed(counts)} of {sizes} sizes (gains of {signed} %)"
    first += f", {', '.join(head.limits)}" if head.limits else ""
    if not better and not worse:
        return f"{first}."
    return ". ".join([f"{first}; {trend_text(head)}", *_at_the_largest(head)]) + "."


def _against(ladder: Ladder) -> str:
    """'softmax'; of several controls 'affine softmax (the strongest control)'."""
    alone = sum(head.is_control for head in ladder.heads) == 1
    return ladder.reference if alone or STRONGEST in ladder.reference else f"{ladder.reference} (the {STRONGEST})"


def trend_text(head: HeadOnLadder) -> str:
    """'the gain shrinks with size (-0.7 % for each doubling [-1.0, -0.4])'."""
    trend = head.trend
    if trend is None or trend.low is None or trend.high is None:
        return "how the gain changes with size is not known: a size has fewer than two seeds"
    change = f"{percents(trend.slope, sign=True)} % for each doubling of the parameters"
    ends = f"[{percents(trend.low, sign=True)}, {percents(trend.high, sign=True)}], {trend.sizes} sizes"
    if trend.word == "undecided":
        return f"whether the gain changes with size is undecided ({change} {ends})"
    words = BEHIND if _is_behind(head) else AHEAD
    return f"{words[trend.word]} ({change} {ends})"


def trend_in_brief(head: HeadOnLadder) -> str:
    """'shrinks', 'catches up', 'trend undecided'."""
    word = head.trend.word
    if word == "undecided":
        return "trend undecided"
    return BEHIND_IN_BRIEF[word] if _is_behind(head) else word


def _is_behind(head: HeadOnLadder) -> bool:
    """Whether it is worse at a size, and better at none: then a gain that grows is a gap that closes."""
    return bool(head.number("worse")) and not head.number("better")


def _at_the_largest(head: HeadOnLadder) -> list[str]:
    """'At the largest size it is worth 1.30 [1.10, 1.50] times the parameters and costs 1.5 times the time: 0.80 times
    as fast to the same loss'. [] where the straight lines and the power law do not agree on the word for the
    parameters, and without the last number where they do not for the time.
    """
    of_size = {axis: found[-1] for axis, found in head.worth.items()}
    worth = of_size.get("N")
    if worth is None or worth.word == "undecided":
        return []
    said = f"At the largest size it is worth {worth_text(worth)} times the parameters"
    for axis, name, unit in (("T", "time", "as fast"), ("C", "compute", "the compute")):
        found = of_size.get(axis)
        if found is not None:
            same = abs(found.cost - 1) < SAME
            said += f" and costs {'as much' if same else f'{found.cost:.1f} times the'} {name}"
            said += "" if found.word == "undecided" else f": {worth_text(found)} times {unit} to the same loss"
            break
    return [said]


def worth_text(worth: Worth) -> str:
    """'1.30 [1.10, 1.50]', 'more than 2.00 [1.10, above 2.00]', 'less than 1.00 (beyond the smallest size)'."""
    best, said, beyond = worth.best, f"{worth.best.value:.2f}", ""
    if math.isinf(best.value):
        said, beyond = f"more than {worth.highest:.2f}", " (beyond the largest size)"
    elif best.value == 0:
        said, beyond = f"less than {worth.lowest:.2f}", " (beyond the smallest size)"
    if best.low is None or best.high is None or (beyond and best.low == best.high):  # all of it is beyond the sizes
        return said + beyond
    return f"{said} [{_end(best.low, worth)}, {_end(best.high, worth)}]"


def _end(of_interval: float, worth: Worth) -> str:
    if math.isinf(of_interval):
        return f"above {worth.highest:.2f}"
    return f"{of_interval:.2f}" if of_interval > 0 else f"below {worth.lowest:.2f}"


def percents(nats: float, *, sign: bool = False) -> str:
    """A gain in nats as a change of perplexity in per cent: '2.9', or '+2.9' with `sign`."""
    return number_text(100 * fraction(nats), sign=sign)


def number_text(value: float, *, sign: bool = False) -> str:
    """A number of per cent with one digit after the point; a small one with two."""
    digits = 1 if abs(value) >= 0.95 else 2
    value = round(value, digits) + 0.0  # without the sign of -0.00
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def _listed(given: Iterable[str]) -> str:
    texts = list(given)
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
