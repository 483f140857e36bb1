"""The curve of a row's mean loss over an axis of sizes: parameters, compute or time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from harness.ladder.drawn_means import Estimate, Losses, deviations, finite, mean, t_factor

FIT_SIZES = 4  # of fewer, a power law with a floor has as many parameters as there are losses
# Exponents that the fit tries at first. Published ones of losses in nats are 0.03 to 0.6.
ALPHAS = np.geomspace(1e-3, 5, 30)
LAST_WIDTH = 1e-4  # of an interval of log alpha: alpha has four digits
GOLDEN = (math.sqrt(5) - 1) / 2
LEAST = 1e-9  # nats between a fitted floor and the lowest loss


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PowerLaw:
    """L = floor + scale x^-alpha, for each of R ladders.

    Args:
        floor_R: L_inf, the loss of an endless size, in nats.
    """

    floor_R: np.ndarray
    scale_R: np.ndarray
    alpha_R: np.ndarray

    def at(self, x: float) -> np.ndarray:
        """The loss at a size, in nats."""
        return self.floor_R + self.scale_R * x**-self.alpha_R

    def distance(self, size: int, loss_R: np.ndarray, gain_R: np.ndarray) -> np.ndarray:
        """log(x' / x), where the curve falls by `gain` from the loss of a size, at x, to x'. inf if
        that is not above the floor. The law is the same at every `size`.

        x' / x = ((loss - floor) / (loss - gain - floor))^(1 / alpha): the curve is scaled so that
        it goes through this loss. So no gain is no distance, even if the fit misses the loss.
        """
        above_R = loss_R - gain_R - self.floor_R
        ratio_R = (loss_R - self.floor_R) / np.where(above_R > 0, above_R, 1)
        return np.where(above_R > 0, np.log(ratio_R) / self.alpha_R, math.inf)


def fit(x_K: np.ndarray, losses_RK: np.ndarray, *, floor: float | None = None) -> PowerLaw:
    """The power law with the least sum of squared residuals (in nats), for each of R ladders.

    Given alpha, floor and scale are those of a straight line in x^-alpha; so only alpha is
    searched: on ALPHAS, then by golden sections around the best one (the bounds of the floor make
    corners, at which parabolas fail). Each size has the same weight, whatever its number of seeds.
    Args:
        floor: L_inf, below the lowest loss; None: fitted within [0, lowest loss).
    """
    losses_RK = np.atleast_2d(losses_RK)
    middle = math.exp(np.log(x_K).mean())
    log_K = np.log(x_K) - math.log(middle)

    *_, squares_RA = _lines(ALPHAS[None], log_K, losses_RK, floor)
    step = math.log(ALPHAS[1] / ALPHAS[0])
    low_R = np.log(ALPHAS[squares_RA.argmin(axis=1)]) - step
    width = 2 * step
    while width > LAST_WIDTH:
        inner_R2 = low_R[:, None] + width * np.array([1 - GOLDEN, GOLDEN])
        *_, squares_R2 = _lines(np.exp(inner_R2), log_K, losses_RK, floor)
        low_R = np.where(squares_R2[:, 0] <= squares_R2[:, 1], low_R, inner_R2[:, 0])
        width *= GOLDEN
    log_R = low_R + width / 2
    alpha_R = np.exp(log_R)
    floor_RA, scale_RA, _ = _lines(alpha_R[:, None], log_K, losses_RK, floor)
    scale_R = scale_RA[:, 0] * middle**alpha_R
    return PowerLaw(floor_R=floor_RA[:, 0], scale_R=scale_R, alpha_R=alpha_R)


def _lines(alpha_RA, log_K, losses_RK, floor: float | None):
    """Floor, scale and sum of squared residuals of the best line in x^-alpha, for each alpha.

    `alpha_RA` may have one row for all ladders. Sums over sizes are of losses above the lowest one.
    """
    sizes, lowest_R1 = losses_RK.shape[1], losses_RK.min(axis=1)[:, None]
    power_RAK, above_RK = np.exp(-alpha_RA[..., None] * log_K), losses_RK - lowest_R1
    product_RA = np.einsum("rak,rk->ra", power_RAK, above_RK)
    sum_RA, square_RA = power_RAK.sum(axis=-1), np.einsum("rak,rak->ra", power_RAK, power_RAK)
    above_R1, squares_R1 = (each.sum(axis=1)[:, None] for each in (above_RK, above_RK**2))

    # The floor as a distance below the lowest loss. The sum of squares is convex in it: the best
    # one within [0, lowest loss) is the nearest.
    if floor is None:
        spread_RA = sizes * square_RA - sum_RA**2
        slope_RA = (sizes * product_RA - sum_RA * above_R1) / spread_RA
        below_RA = np.clip((slope_RA * sum_RA - above_R1) / sizes, LEAST, lowest_R1)
    else:
        below_RA = np.broadcast_to(np.maximum(lowest_R1 - floor, LEAST), product_RA.shape)
    scale_RA = (product_RA + below_RA * sum_RA) / square_RA
    total_RA = squares_R1 + 2 * below_RA * above_R1 + sizes * below_RA**2
    return lowest_R1 - below_RA, scale_RA, total_RA - scale_RA**2 * square_RA


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Straight:
    """Straight lines between neighbouring sizes in (log x, log loss), for each of R ladders.

    Args:
        losses_RK: (R, K), in nats.
    """

    x_K: np.ndarray
    losses_RK: np.ndarray

    def at(self, x: float) -> np.ndarray:
        """The loss at a size within the ends, in nats."""
        right = max(1, int(np.searchsorted(self.x_K, x)))
        left_x, right_x = self.x_K[right - 1 : right + 1]
        share = math.log(x / left_x) / math.log(right_x / left_x)
        logs_RK = np.log(self.losses_RK)
        return np.exp((1 - share) * logs_RK[:, right - 1] + share * logs_RK[:, right])

    def distance(self, size: int, loss_R: np.ndarray, gain_R: np.ndarray) -> np.ndarray:
        """log(x' / x), where the curve first falls by `gain` below the loss of a size, at x,
        towards larger ones; for a gain below 0, rises by it towards smaller ones. inf and -inf
        beyond the ends.
        """
        goal_R = np.log(np.maximum(loss_R - gain_R, np.finfo(float).tiny))
        larger_R = self._reached(goal_R, range(size, len(self.x_K)))
        smaller_R = self._reached(goal_R, range(size, -1, -1))
        return np.where(gain_R > 0, larger_R, np.where(gain_R < 0, smaller_R, 0.0))

    def _reached(self, goal_R: np.ndarray, sizes: range) -> np.ndarray:
        """log(x' / x) of the first point with a log loss along these sizes; x is the first size."""
        logs_RK, start = np.log(self.losses_RK), self.x_K[sizes[0]]
        found_R = np.full(len(goal_R), sizes.step * math.inf)
        for here, there in pairwise(sizes):
            change_R = logs_RK[:, there] - logs_RK[:, here]
            share_R = (goal_R - logs_RK[:, here]) / np.where(change_R, change_R, math.nan)
            first_R = np.isinf(found_R) & (share_R >= 0) & (share_R <= 1)
            length = math.log(self.x_K[there] / self.x_K[here])
            reached_R = math.log(self.x_K[here] / start) + share_R * length
            found_R = np.where(first_R, reached_R, found_R)
        return found_R


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """The curve of one row.

    Args:
        x_K: the axis, growing; fixed numbers, not random.
        law: the fitted power law for FIT_SIZES sizes or more, else straight lines: first of the
            found means, then of drawn ones, if each size has two seeds.
    """

    x_K: np.ndarray
    law: PowerLaw | Straight

    def loss_at(self, x: float) -> Estimate | None:
        """The loss at a size, in nats, for a curve with its band. None beyond the ends."""
        return Estimate.of(self.law.at(x)) if self.x_K[0] <= x <= self.x_K[-1] else None


def curve(x: Sequence[float], losses: Sequence[Losses]) -> Curve:
    """The curve of a row from its losses by seed at each size.

    Args:
        x: the axis, growing.
        losses: a seed's mean nll at each size; ones that are not finite are left out.
    Raises: ValueError for fewer than two sizes, one without a loss, or an axis that does not grow.
    """
    x_K, kept = np.array(x, dtype=float), [finite(each) for each in losses]
    if len(x_K) < 2 or not all(kept):
        raise ValueError("expected two sizes or more, each with a loss")
    if not grows(x_K):
        raise ValueError(f"expected an axis that grows, from above 0, got {list(x)}")
    means_K = np.array([mean(each) for each in kept])
    seeds_K = np.array([len(each) for each in kept])
    rows_RK = means_K[None]
    if (seeds_K > 1).all():
        sd_K = np.array([np.std(list(each.values()), ddof=1) for each in kept])
        error_K = t_factor(seeds_K - 1) * sd_K / np.sqrt(seeds_K)
        rows_RK = means_K + deviations(1, len(x_K))[0] * error_K
    if len(x_K) < FIT_SIZES:
        return Curve(x_K=x_K, law=Straight(x_K=x_K, losses_RK=rows_RK))
    return Curve(x_K=x_K, law=fit(x_K, rows_RK))


def grows(x_K: np.ndarray) -> bool:
    """Whether numbers grow, from above 0. Not so where one is not a number."""
    return bool(x_K[0] > 0 and (np.diff(x_K) > 0).all())


def check_floor(floor: float | None, losses_K: np.ndarray) -> None:
    lowest = losses_K.min()
    if floor is not None and not floor < lowest:
        raise ValueError(f"expected a floor below the lowest loss, {lowest:g}, got {floor:g}")
