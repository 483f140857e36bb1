"""What a gain is worth, in parameters, compute or time, and as a share of the next step in size."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.ladder.curve import FIT_SIZES, PowerLaw, Straight, check_floor, fit, grows
from harness.ladder.drawn import TAIL, Estimate, Means

Law = PowerLaw | Straight
WorthWord = Literal["more", "less", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What the baseline and a head take at each size, small to large: parameters, FLOPs or seconds
    of training. These numbers are fixed: intervals do not cover how a time was measured.
    """

    baseline: Sequence[float]
    head: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """x' / x at one size: x is what the head takes here, x' what the baseline would take for the
    head's loss. 1.4 is 'as good as the baseline with 1.4 times the parameters'; of time it is the
    effective speed-up. Above 1 the head is worth what it takes.

    inf and 0 stand for numbers beyond the sizes: 'more than `highest`', 'less than `lowest`'.

    Args:
        straight: by straight lines between neighbouring sizes in (log x, log loss).
        fitted: by the power law with its floor; None for fewer than FIT_SIZES sizes.
        cost: what the head takes here, as a ratio to the baseline.
        lowest, highest: the range that the sizes allow to read.
    """

    straight: Estimate
    fitted: Estimate | None
    cost: float
    lowest: float
    highest: float

    @property
    def best(self) -> Estimate:
        """The number to show: by the power law, if there is one."""
        return self.fitted or self.straight

    @property
    def word(self) -> WorthWord:
        """Whether the head is worth more or less than it takes: its interval excludes 1. 'undecided'
        if the power law and the straight lines have two words, as the floor moves the answer.
        """
        words = {_word(each) for each in (self.straight, self.fitted) if each is not None}
        return words.pop() if len(words) == 1 else "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The gain at a size as a fraction of what the baseline gains by the step to the next size.

    In nats g_k / (b_k - b_{k+1}), in perplexity (e^b_k - e^(b_k - g_k)) / (e^b_k - e^b_{k+1}).
    """

    nats: Estimate
    perplexity: Estimate


def worths(axis: Axis, found: Means, *, floor: float | None = None) -> tuple[Worth | None, ...]:
    """What the head is worth at each size, with intervals over seeds.

    The curve of the baseline is read from its own loss at the size to that loss less the gain: the
    head's loss over the seeds that both have. Nothing is extrapolated. At the largest size the curve
    ends, so the gain of a better head is read backwards: x / x' with x' where the baseline's loss
    is higher by the gain; and likewise that of a worse head at the smallest size. Of a curve that
    flattens this is less than beyond its end.

    None at a size without a gain, and everywhere if the mean loss of the baseline does not fall, or
    the axis does not grow, from each size to the next.
    Args:
        floor: L_inf of the power law, in nats; None: fitted.
    """
    x_K, losses_K = np.array(axis.baseline, dtype=float), found.baseline_K
    sizes = len(x_K)
    if sizes < 2 or not grows(x_K) or not grows(losses_K[::-1]):
        return (None,) * sizes
    check_floor(floor, losses_K)
    cost_K, drawn = np.array(axis.head, dtype=float) / x_K, found.drawn()

    def by(law_of: Callable[[np.ndarray], Law]) -> list[Estimate | None]:
        drawn_law = None if drawn is None else law_of(drawn[0])
        return _estimates(law_of(losses_K[None]), drawn_law, found, drawn, x_K, cost_K)

    straight = by(lambda losses_DK: Straight(x_K=x_K, losses_DK=losses_DK))
    fitted: list[Estimate | None] = [None] * sizes
    if sizes >= FIT_SIZES:
        fitted = by(lambda losses_DK: fit(x_K, losses_DK, floor=floor))
    result = []
    for size, (line, power) in enumerate(zip(straight, fitted, strict=True)):
        if line is None:
            result.append(None)
            continue
        lowest, highest = (end / cost_K[size] for end in _ends(x_K, size))
        cost = float(cost_K[size])
        result.append(Worth(straight=line, fitted=power, cost=cost, lowest=lowest, highest=highest))
    return tuple(result)


def _estimates(law: Law, drawn_law: Law | None, found: Means, drawn, x_K, cost_K):
    """The worth at each size by one law; None at a size without a gain."""
    result = []
    for size, seeds in enumerate(found.shared_K):
        if not seeds:
            result.append(None)
            continue
        value = _ratios(law, size, found.baseline_K[None], found.gain_K[None], x_K)[0]
        numbers_D = None
        if drawn_law is not None and seeds > 1:
            numbers_D = _ratios(drawn_law, size, *drawn, x_K) / cost_K[size]
        result.append(Estimate.of(value / cost_K[size], numbers_D))
    return result


def _ratios(law: Law, size: int, losses_DK, gains_DK, x_K) -> np.ndarray:
    """x' over the baseline's x at a size, for the found means or drawn ones; inf and 0 beyond."""
    loss_D, gain_D = losses_DK[:, size], gains_DK[:, size]
    # At the ends the curve goes on in one direction only.
    backwards_D = (gain_D > 0) & (size == len(x_K) - 1) | (gain_D < 0) & (size == 0)
    direction_D = np.where(backwards_D, -1, 1)
    ratios_D = np.exp(direction_D * law.distance(size, loss_D, direction_D * gain_D))
    lowest, highest = _ends(x_K, size)
    beyond_D = np.where(ratios_D > highest, math.inf, ratios_D)
    return np.where(ratios_D < lowest, 0.0, beyond_D)


def _ends(x_K: np.ndarray, size: int) -> tuple[float, float]:
    """The lowest and the highest ratio that can be read at a size."""
    whole = x_K[-1] / x_K[0]
    lowest = x_K[0] / x_K[size] if size else 1 / whole
    highest = x_K[-1] / x_K[size] if size < len(x_K) - 1 else whole
    return float(lowest), float(highest)


def _word(found: Estimate) -> WorthWord:
    if found.low is None or found.high is None or found.low <= 1 <= found.high:
        return "undecided"
    return "more" if found.low > 1 else "less"


def shares(found: Means) -> tuple[Share | None, ...]:
    """The gain at each size as a share of the baseline's step to the next, with intervals over
    seeds.

    None at the largest size, at one without a gain, and where the baseline's mean loss does not fall.
    Without an interval where the interval of the step itself includes 0: then a share has no ends.
    """
    drawn = found.drawn()
    result = []
    for size in range(len(found.gain_K) - 1):
        pair = found.baseline_K[None, size : size + 2]
        step = pair[0, 0] - pair[0, 1]
        if not (found.shared_K[size] and step > 0):
            result.append(None)
            continue
        (nats, perplexity), drawn_shares = (
            _shares(pair, found.gain_K[size : size + 1]),
            (None, None),
        )
        if drawn is not None and found.shared_K[size] > 1:
            pairs_D2 = drawn[0][:, size : size + 2]
            if np.sort(pairs_D2[:, 0] - pairs_D2[:, 1])[TAIL] > 0:
                drawn_shares = _shares(pairs_D2, drawn[1][:, size])
        result.append(
            Share(
                nats=Estimate.of(nats[0], drawn_shares[0]),
                perplexity=Estimate.of(perplexity[0], drawn_shares[1]),
            )
        )
    return (*result, None)


def _shares(pairs_D2: np.ndarray, gain_D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares in nats and in perplexity, from the baseline's losses here and at the next size."""
    here_D, next_D = pairs_D2.T
    # Both divided by e^here: a fraction of the perplexity here.
    return gain_D / (here_D - next_D), np.expm1(-gain_D) / np.expm1(next_D - here_D)
