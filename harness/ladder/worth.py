"""What a gain is worth, in parameters, compute or time, and as a share of the next step in size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.ladder.curve import FIT_SIZES, PowerLaw, Straight, check_floor, fit, grows
from harness.ladder.drawn_means import Estimate, Means

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
        """Whether the head is worth more or less than it takes: its interval excludes 1.
        'undecided' if the power law and the straight lines have two words: the floor moves the
        answer.
        """
        words = {self._word_of(each) for each in (self.straight, self.fitted) if each is not None}
        return words.pop() if len(words) == 1 else "undecided"

    def _word_of(self, found: Estimate) -> WorthWord:
        if found.low is None or found.high is None:
            return "undecided"
        if self.lowest <= 1 if found.high == 0 else found.high < 1:  # 0: less than `lowest`
            return "less"
        if self.highest >= 1 if math.isinf(found.low) else found.low > 1:
            return "more"
        return "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The gain at a size as a fraction of what the baseline gains by the step to the next size.

    In nats g_k / (b_k - b_{k+1}), in perplexity (e^b_k - e^(b_k - g_k)) / (e^b_k - e^b_{k+1}).
    """

    nats: Estimate
    perplexity: Estimate


def worths(axis: Axis, found: Means, *, floor: float | None = None) -> tuple[Worth | None, ...]:
    """What the head is worth at each size, with intervals over seeds, if each size has two or more.

    The curve of the baseline is read from its own loss at the size to that loss less the gain.
    Nothing is extrapolated: a head that is worse at the smallest size is worth less than that one
    takes. At the largest size the gain of a better head is read backwards: x / x' with x' where the
    baseline's loss is higher by the gain. Of a curve that flattens this is less than beyond its
    end.

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
    losses_RK, gains_RK = found.rows()
    laws: list[Law] = [Straight(x_K=x_K, losses_RK=losses_RK)]
    if sizes >= FIT_SIZES:
        laws.append(fit(x_K, losses_RK, floor=floor))
    result = []
    for size, seeds in enumerate(found.shared_K):
        if not seeds:
            result.append(None)
            continue
        cost, (lowest, highest) = axis.head[size] / axis.baseline[size], _ends(x_K, size)
        estimates = []
        for law in laws:
            ratios_R = _ratios(law, size, losses_RK[:, size], gains_RK[:, size], x_K) / cost
            estimates.append(Estimate.of(ratios_R))
        result.append(
            Worth(
                straight=estimates[0],
                fitted=estimates[1] if len(estimates) > 1 else None,
                cost=float(cost),
                lowest=float(lowest / cost),
                highest=float(highest / cost),
            )
        )
    return tuple(result)


def _ratios(law: Law, size: int, loss_R, gain_R, x_K) -> np.ndarray:
    """x' over the baseline's x at a size; inf and 0 beyond the ends."""
    backwards_R = (gain_R > 0) & (size == len(x_K) - 1)
    direction_R = np.where(backwards_R, -1, 1)
    logs_R = direction_R * law.distance(size, loss_R, direction_R * gain_R)
    lowest, highest = map(math.log, _ends(x_K, size))
    logs_R = np.where(logs_R > highest, math.inf, np.where(logs_R < lowest, -math.inf, logs_R))
    return np.exp(logs_R)


def _ends(x_K: np.ndarray, size: int) -> tuple[float, float]:
    """The lowest and the highest ratio that can be read at a size."""
    whole = x_K[-1] / x_K[0]
    lowest = x_K[0] / x_K[size]
    highest = x_K[-1] / x_K[size] if size < len(x_K) - 1 else whole
    return float(lowest), float(highest)


def shares(found: Means) -> tuple[Share | None, ...]:
    """The gain at each size as a share of the baseline's step to the next, with intervals over
    seeds.

    None at the largest size, at one without a gain, and where the baseline's mean loss does not
    fall. Without an interval where that of the step itself includes 0: then a share has no ends.
    """
    losses_RK, gains_RK = found.rows()
    result = []
    for size, seeds in enumerate(found.shared_K[:-1]):
        step_R = losses_RK[:, size] - losses_RK[:, size + 1]
        if not (seeds and step_R[0] > 0):
            result.append(None)
            continue
        step = Estimate.of(step_R)
        last = None if step.low is not None and step.low > 0 else 1  # the found means only
        next_R, here_R, gain_R = (
            each[:last] for each in (losses_RK[:, size + 1], losses_RK[:, size], gains_RK[:, size])
        )
        # In perplexity both are divided by e^here.
        perplexity_R = np.expm1(-gain_R) / np.expm1(next_R - here_R)
        nats = Estimate.of(gain_R / step_R[:last])
        result.append(Share(nats=nats, perplexity=Estimate.of(perplexity_R)))
    return (*result, None)
