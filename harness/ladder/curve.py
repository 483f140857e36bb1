"""The curve of a row's mean loss over an axis of sizes: parameters, compute or time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from harness.ladder.drawn import Estimate, Losses, deviations, finite, mean

FIT_SIZES = 4  # of fewer, a power law with a floor has as many parameters as there are losses
# Exponents that the fit tries at first. Published ones of losses in nats are 0.03 to 0.6.
ALPHAS = np.geomspace(1e-3, 10, 80)
AROUND = np.array([-1.0, 0.0, 1.0])
LAST_STEP = 1e-4  # of log alpha; below it sums of squares differ by rounding
LEAST = 1e-9  # nats between a fitted floor and the lowest loss


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PowerLaw:
    """L = floor + scale x^-alpha: one curve (numbers) or drawn ones (arrays of D).

    Args:
        floor: L_inf, the loss of an endless size, in nats.
    """

    floor: np.ndarray
    scale: np.ndarray
    alpha: np.ndarray

    def at(self, x: float | np.ndarray) -> np.ndarray:
        """The loss at a size, in nats."""
        return self.floor + self.scale * x**-self.alpha

    def distance(self, size: int, loss: np.ndarray, gain: np.ndarray) -> np.ndarray:
        """log(x' / x), where the curve falls by `gain` from the loss of a size, at x, to x'. inf if
        that is not above the floor. The law is the same at every `size`.

        x' / x = ((loss - floor) / (loss - gain - floor))^(1 / alpha): the curve is scaled so that it
        goes through this loss. So no gain is no distance, even if the fit misses the loss.
        """
        left = np.asarray(loss - gain - self.floor)
        ratio = (loss - self.floor) / np.where(left > 0, left, 1)
        return np.where(left > 0, np.log(ratio) / self.alpha, math.inf)


def fit(x_K: np.ndarray, losses_DK: np.ndarray, *, floor: float | None = None) -> PowerLaw:
    """The power law with the least sum of squared residuals (in nats), for each of D ladders.

    Given alpha, floor and scale are those of a straight line in x^-alpha; so only alpha is searched:
    on ALPHAS, then by parabolas around the best. Each size has the same weight.
    Args:
        floor: L_inf, below the lowest loss; None: fitted within [0, lowest loss).
    """
    losses_DK = np.atleast_2d(losses_DK)
    middle = math.exp(np.log(x_K).mean())
    log_K = np.log(x_K) - math.log(middle)

    *_, squares_DA = _lines(ALPHAS[None], log_K, losses_DK, floor)
    log_D, step = np.log(ALPHAS[squares_DA.argmin(axis=1)]), math.log(ALPHAS[1] / ALPHAS[0])
    while step > LAST_STEP:
        *_, squares_D3 = _lines(np.exp(log_D[:, None] + step * AROUND), log_K, losses_DK, floor)
        log_D = log_D + step * _lowest(squares_D3)
        step /= 10
    alpha_D = np.exp(log_D)
    floor_DA, scale_DA, _ = _lines(alpha_D[:, None], log_K, losses_DK, floor)
    return PowerLaw(floor=floor_DA[:, 0], scale=scale_DA[:, 0] * middle**alpha_D, alpha=alpha_D)


def _lowest(squares_D3: np.ndarray) -> np.ndarray:
    """Where the parabola through three points at -1, 0 and 1 is lowest, within these ends."""
    left_D, middle_D, right_D = squares_D3.T
    bend_D = left_D - 2 * middle_D + right_D
    vertex_D = (left_D - right_D) / (2 * np.where(bend_D > 0, bend_D, 1))
    lowest_D = AROUND[squares_D3.argmin(axis=1)]
    return np.where(bend_D > 0, np.clip(vertex_D, -1, 1), lowest_D)


def _lines(alpha_DA, log_K, losses_DK, floor: float | None):
    """Floor, scale and sum of squared residuals of the best line in x^-alpha, for each alpha.

    `alpha_DA` may have one row for all ladders. Sums over sizes are of losses above the lowest one.
    """
    sizes, lowest_D1 = losses_DK.shape[1], losses_DK.min(axis=1)[:, None]
    power_DAK, above_DK = np.exp(-alpha_DA[..., None] * log_K), losses_DK - lowest_D1
    product_DA = (power_DAK @ above_DK[..., None])[..., 0]
    sum_DA, square_DA = power_DAK.sum(axis=-1), (power_DAK**2).sum(axis=-1)
    above_D1, squares_D1 = (each.sum(axis=1)[:, None] for each in (above_DK, above_DK**2))

    # The floor as a distance below the lowest loss. The sum of squares is convex in it: the best one
    # within [0, lowest loss) is the nearest.
    if floor is None:
        spread_DA = sizes * square_DA - sum_DA**2
        slope_DA = (sizes * product_DA - sum_DA * above_D1) / spread_DA
        below_DA = np.clip((slope_DA * sum_DA - above_D1) / sizes, LEAST, lowest_D1)
    else:
        below_DA = np.broadcast_to(np.maximum(lowest_D1 - floor, LEAST), product_DA.shape)
    scale_DA = (product_DA + below_DA * sum_DA) / square_DA
    total_DA = squares_D1 + 2 * below_DA * above_D1 + sizes * below_DA**2
    return lowest_D1 - below_DA, scale_DA, total_DA - scale_DA**2 * square_DA


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Straight:
    """Straight lines between neighbouring sizes in (log x, log loss), of one ladder or D drawn ones.

    Args:
        losses_DK: (D, K), in nats.
    """

    x_K: np.ndarray
    losses_DK: np.ndarray

    def at(self, x: float) -> np.ndarray:
        """The loss at a size within the ends, in nats."""
        right = max(1, int(np.searchsorted(self.x_K, x)))
        left_x, right_x = self.x_K[right - 1 : right + 1]
        share = math.log(x / left_x) / math.log(right_x / left_x)
        logs_DK = np.log(self.losses_DK)
        return np.exp((1 - share) * logs_DK[:, right - 1] + share * logs_DK[:, right])

    def distance(self, size: int, loss_D: np.ndarray, gain_D: np.ndarray) -> np.ndarray:
        """log(x' / x), where the curve first falls by `gain` below the loss of a size, at x, towards
        larger ones; for a gain below 0, rises by it towards smaller ones. inf and -inf beyond the
        ends.
        """
        goal_D = np.log(np.maximum(loss_D - gain_D, np.finfo(float).tiny))
        larger_D = self._reached(goal_D, range(size, len(self.x_K)))
        smaller_D = self._reached(goal_D, range(size, -1, -1))
        return np.where(gain_D > 0, larger_D, np.where(gain_D < 0, smaller_D, 0.0))

    def _reached(self, goal_D: np.ndarray, sizes: range) -> np.ndarray:
        """log(x' / x) of the first point with a log loss along these sizes, the first of them at x."""
        logs_DK, start = np.log(self.losses_DK), self.x_K[sizes[0]]
        found_D = np.full(len(goal_D), sizes.step * math.inf)
        for here, there in pairwise(sizes):
            change_D = logs_DK[:, there] - logs_DK[:, here]
            share_D = (goal_D - logs_DK[:, here]) / np.where(change_D, change_D, math.nan)
            first_D = np.isinf(found_D) & (share_D >= 0) & (share_D <= 1)
            length = math.log(self.x_K[there] / self.x_K[here])
            reached_D = math.log(self.x_K[here] / start) + share_D * length
            found_D = np.where(first_D, reached_D, found_D)
        return found_D


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """The curve of one row, with what a reader has to see of its fit.

    Args:
        x_K: the axis, growing; fixed numbers, not random.
        means_K: the mean loss of each size, in nats.
        sd: of a seed's loss, pooled over sizes; None where no size has two seeds.
        law: the fitted power law for FIT_SIZES sizes or more, else straight lines.
        drawn: the same of drawn means; None without an sd.
        residuals: mean loss less the power law's, in nats, by size; () for straight lines, and the
            next two are None.
        r2: 1 - sum of squared residuals / sum of squares about the mean.
        floor: L_inf; its interval is over seeds, and None where the floor was given.
    """

    x_K: np.ndarray
    means_K: np.ndarray
    sd: float | None
    law: PowerLaw | Straight
    drawn: PowerLaw | Straight | None
    residuals: tuple[float, ...] = ()
    r2: float | None = None
    floor: Estimate | None = None

    def loss_at(self, x: float) -> Estimate | None:
        """The loss at a size, in nats, for a curve with its band. None beyond the ends."""
        return self._loss(x) if self.x_K[0] <= x <= self.x_K[-1] else None

    def predicted(self, x: float) -> Estimate | None:
        """The loss at a larger size, by the power law. None for straight lines, or if the largest
        residual is not below the sd of a seed's loss. The interval is over seeds: it does not say
        whether the law holds there.
        """
        if not self.residuals or self.sd is None or max(map(abs, self.residuals)) >= self.sd:
            return None
        return self._loss(x)

    def reaching(self, loss: float) -> float:
        """The size at which the curve has a loss; inf and -inf beyond the largest and the smallest."""
        first = self.law.at(self.x_K[0])
        if loss > first[0]:
            return -math.inf
        x = self.x_K[0] * math.exp(self.law.distance(0, first, first - loss)[0])
        return x if x <= self.x_K[-1] else math.inf

    def _loss(self, x: float) -> Estimate:
        return Estimate.of(self.law.at(x)[0], None if self.drawn is None else self.drawn.at(x))


def curve(x: Sequence[float], losses: Sequence[Losses], *, floor: float | None = None) -> Curve:
    """The curve of a row from its losses by seed at each size.

    Args:
        x: the axis, growing.
        losses: a seed's mean nll at each size; ones that are not finite are left out.
        floor: L_inf, in nats; None: fitted.
    Raises: ValueError for fewer than two sizes, one without a loss, an axis that does not grow, or
        a floor that is not below the mean losses.
    """
    x_K, kept = np.array(x, dtype=float), [finite(each) for each in losses]
    if len(x_K) < 2 or not all(kept):
        raise ValueError("expected two sizes or more, each with a loss")
    if not grows(x_K):
        raise ValueError(f"expected an axis that grows, from above 0, got {list(x)}")
    means_K = np.array([mean(each) for each in kept])
    check_floor(floor, means_K)
    seeds_K = np.array([len(each) for each in kept])
    df, sd, drawn_DK = int((seeds_K - 1).sum()), None, None
    if df:
        squares = [(loss - mean(each)) ** 2 for each in kept for loss in each.values()]
        sd = math.sqrt(math.fsum(squares) / df)
        drawn_DK = means_K + deviations(1, len(x_K), df)[0] * sd / np.sqrt(seeds_K)

    if len(x_K) < FIT_SIZES:
        law = Straight(x_K=x_K, losses_DK=means_K[None])
        drawn = None if drawn_DK is None else Straight(x_K=x_K, losses_DK=drawn_DK)
        return Curve(x_K=x_K, means_K=means_K, sd=sd, law=law, drawn=drawn)

    law = fit(x_K, means_K, floor=floor)
    drawn = None if drawn_DK is None else fit(x_K, drawn_DK, floor=floor)
    residuals_K = means_K - law.at(x_K)
    return Curve(
        x_K=x_K,
        means_K=means_K,
        sd=sd,
        law=law,
        drawn=drawn,
        residuals=tuple(residuals_K.tolist()),
        r2=float(1 - (residuals_K**2).sum() / ((means_K - means_K.mean()) ** 2).sum()),
        floor=Estimate.of(
            law.floor[0], None if floor is not None or drawn is None else drawn.floor
        ),
    )


def grows(x_K: np.ndarray) -> bool:
    """Whether numbers grow, from above 0. Not so where one is not a number."""
    return bool(x_K[0] > 0 and (np.diff(x_K) > 0).all())


def check_floor(floor: float | None, losses_K: np.ndarray) -> None:
    lowest = losses_K.min()
    if floor is not None and not floor < lowest:
        raise ValueError(f"expected a floor below the lowest loss, {lowest:g}, got {floor:g}")
