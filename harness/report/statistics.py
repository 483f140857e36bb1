"""Tests and intervals for the difference of two heads over seeds.

A difference is one of log perplexities, which are mean nats per token, head minus baseline; as a
change of perplexity it is exp(difference) - 1. Two tests exist: the paired t test takes the
difference of each seed, Welch's test takes the two means. A suite declares one of them
(`table.test`).
"""

import math
import operator
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

CONFIDENCE = 0.95
TWO_SIDED = (1 + CONFIDENCE) / 2
WIDEST = 4.0  # the ends of an interval that tables write out, as a ratio of perplexities
EXACT_SEEDS = 12  # up to this number, all 2^n patterns of signs are counted
DRAWN_PATTERNS = 9_999  # the number of drawn patterns, for more seeds
ROUNDING = 1e-12  # of the mean size: patterns whose means differ by less are equally far from 0
CORRELATED_SEEDS = 3  # of two seeds every correlation is 1 or -1
# Fewer seeds give no rank, star or verdict: among 2^5 patterns of signs the smallest p is 0.0625.
RANK_SEEDS = 6
SIGNIFICANT = 0.05  # of a comparison with the baseline, and of the best row
# Of 'behind' where no row is the best; smaller, because a table has verdicts, too.
RANK_SIGNIFICANT = 0.025
STARS = ((0.001, "***"), (0.01, "**"), (SIGNIFICANT, "*"))
POWER = 0.8
SPREAD_SEEDS = 5  # of fewer seeds the spread is so uncertain that a number of seeds says nothing
# Consecutive scored tokens: long enough that neighbouring blocks are nearly independent.
BLOCK = 1_000
FEWEST_BLOCKS = 20  # of an interval
RESAMPLES = 9_999
AT_ONCE = 10**6  # blocks drawn at a time, so that memory does not grow with the split


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanDifference:
    """The mean difference of log perplexity over shared seeds, head less baseline, in nats.

    Args:
        mean: the difference of the means, which is the mean of the differences.
        sd: of a seed's difference: of the pairs, or sqrt(s_1^2 + s_2^2) for Welch's test. None for
            one seed, as are all below.
        low, high: the 95 % t interval of the mean.
        below, above: how much lower and higher the difference may be at settings that tuning did
            not try, in nats: the tuning gaps of the head and of the baseline.
    """

    n: int
    mean: float
    sd: float | None = None
    df: float | None = None
    low: float | None = None
    high: float | None = None
    p_t: float | None = None
    below: float = 0.0
    above: float = 0.0

    @property
    def error(self) -> float | None:
        """The standard error of the mean: sd / sqrt(n); None for one seed."""
        return None if self.sd is None else self.sd / math.sqrt(self.n)

    @property
    def p_settled(self) -> float | None:
        """p of the two-sided t test that the difference is 0 at some of these settings; None for
        one seed.

        p = 2 P(T > (|mean| - gap) / error), with the gap towards 0: `above` of a negative mean,
        `below` of a positive one. 1 if the gap is as large as the mean. Without gaps it is p_t.
        """
        if self.p_t is None:
            return None
        gap = self.above if self.mean < 0 else self.below
        left = abs(self.mean) - gap
        if left <= 0:
            return 1.0
        if not self.error:  # equal differences of all seeds
            return 0.0
        return 2 * float(special.stdtr(self.df, -left / self.error))

    @property
    def reverse(self) -> "MeanDifference":
        """The difference of the baseline less the head."""
        low, high = (None, None) if self.low is None else (-self.high, -self.low)
        gaps = {"below": self.above, "above": self.below}
        return replace(self, mean=-self.mean, low=low, high=high, **gaps)


def paired(differences: Sequence[float]) -> MeanDifference:
    """The paired t test of the differences over n seeds.

    t = mean / (sd / sqrt(n)) with n - 1 degrees of freedom; interval mean -+ t_{0.975} sd /
    sqrt(n). If all differences are equal, p is 1 for differences of 0, else 0.
    Raises: ValueError when there is no difference, or one is not a finite number.
    """
    n, mean = len(differences), _mean(differences)
    if n == 1:
        return MeanDifference(n=1, mean=mean)
    return _tested(n, mean, math.sqrt(_variance(differences)), n - 1)


def welch(ours: Sequence[float], theirs: Sequence[float]) -> MeanDifference:
    """Welch's t test of two heads over the same n seeds, which ignores the pairs: ours less theirs.

    t = mean / sqrt((s_1^2 + s_2^2) / n) with (n - 1) (s_1^2 + s_2^2)^2 / (s_1^4 + s_2^4) degrees of
    freedom.
    Raises: ValueError as `paired` does, or when the numbers of seeds differ.
    Source: Welch (1947), The generalization of Student's problem, Biometrika 34.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"expected the same seeds of both, got {len(ours)} and {len(theirs)}")
    n, mean = len(ours), _mean(ours) - _mean(theirs)
    if n == 1:
        return MeanDifference(n=1, mean=mean)
    one, other = _variance(ours), _variance(theirs)
    # By the ratio of the variances: the squares of small ones would be 0.
    largest = max(one, other)
    share = min(one, other) / largest if largest else 1.0
    df = (n - 1) * (1 + share) ** 2 / (1 + share**2)
    return _tested(n, mean, math.sqrt(one + other), df)


def not_worse(found: MeanDifference, margin: float) -> float:
    """p of the one-sided t test that the head is not worse by a margin, for two seeds or more.

    p = P(T < (mean + above - margin) / error), T of the t distribution with df degrees of freedom.
    If all differences are equal, p is 0 for a difference below the margin, else 1.
    Args:
        margin: in nats, above 0.
    """
    excess = found.mean + found.above - margin
    if not found.error:
        return float(excess >= 0)
    return float(special.stdtr(found.df, excess / found.error))


def equivalence(found: MeanDifference, margin: float) -> float:
    """p of the two one-sided t tests of |difference| < margin, for two seeds or more: the larger of
    both.

    p = max(P(T > (mean - below + margin) / error), P(T < (mean + above - margin) / error)), see
    `not_worse`.
    Args:
        margin: in nats, above 0.
    Source: Schuirmann (1987), A comparison of the two one-sided tests procedure ..., J.
        Pharmacokin. Biopharm. 15.
    """
    return max(not_worse(found, margin), not_worse(found.reverse, margin))


def sign_flip(differences: Sequence[float]) -> tuple[float, int]:
    """p of the two-sided sign-flip test of two seeds or more, and the number of patterns of signs.

    p is the share of patterns under which the mean is as far from 0, exact up to EXACT_SEEDS seeds;
    of more seeds, DRAWN_PATTERNS patterns are drawn.
    """
    n, given = len(differences), np.array(differences, dtype=np.float64)
    if n <= EXACT_SEEDS:
        # The bits of a number are a pattern: -1 where a bit is set.
        patterns = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
        found, observed = np.abs((patterns * given).mean(axis=1)), abs(given.mean())
        as_far = found >= observed - ROUNDING * np.abs(given).mean()
        return float(np.mean(as_far)), 2**n

    # Here: it takes as long to import as all else that a command needs except torch.
    from scipy import stats

    drawn = stats.permutation_test(
        (given,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=DRAWN_PATTERNS,
        rng=np.random.default_rng(0),
    )
    return float(drawn.pvalue), DRAWN_PATTERNS


def correlation(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Pearson's correlation over seeds. None for fewer than three seeds, or if one head has no
    spread.

    Pairs reduce the variance of a difference only if it is above 0. `statistics.correlation` rounds
    otherwise from Python 3.12 on: the same records must give the same table.
    """
    if len(ours) < CORRELATED_SEEDS or min(statistics.stdev(ours), statistics.stdev(theirs)) == 0:
        return None
    x, y = _centred(ours), _centred(theirs)
    return _product(x, y) / math.sqrt(_product(x, x) * _product(y, y))


def _centred(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def _product(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(map(operator.mul, a, b))


def _tested(n: int, mean: float, sd: float, df: float) -> MeanDifference:
    """The t test and interval of a mean with the standard error sd / sqrt(n)."""
    error = sd / math.sqrt(n)
    reach = error * float(special.stdtrit(df, TWO_SIDED))
    p = 2 * float(special.stdtr(df, -abs(mean) / error)) if error else float(mean == 0)
    return MeanDifference(n=n, mean=mean, sd=sd, df=df, low=mean - reach, high=mean + reach, p_t=p)


def _variance(values: Sequence[float]) -> float:
    """The sample variance; exactly 0 for equal numbers. statistics.variance takes ten times as
    long, by fractions.
    """
    if min(values) == max(values):  # their mean may be another number, by rounding
        return 0.0
    mean = statistics.fmean(values)
    return math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1)


def _mean(values: Sequence[float]) -> float:
    if not values or not all(map(math.isfinite, values)):
        raise ValueError(f"expected finite differences, one or more, got {list(values)}")
    return statistics.fmean(values)


def holm(p_values: Sequence[float], untested: int = 0) -> list[float]:
    """Holm's adjusted p-values, in the given order: rejecting those below alpha has a family-wise
    error of alpha.

    In ascending order p'_i = max_{j <= i} min(1, (m - j + 1) p_j) of m comparisons, independent or
    not.
    Args:
        untested: the number of further comparisons, which are planned and have no p yet. They count
            with p = 1.
    Raises: ValueError for a number that is not a probability.
    Source: Holm (1979), A simple sequentially rejective multiple test procedure, Scand. J. Statist.
        6.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"expected probabilities, got {list(p_values)}")
    adjusted, comparisons = [0.0] * len(p_values), len(p_values) + untested
    ascending = sorted(range(len(p_values)), key=p_values.__getitem__)
    largest = 0.0
    for rank, index in enumerate(ascending):
        # No hypothesis is rejected before one with a smaller p.
        largest = max(largest, min(1.0, (comparisons - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def stars(p_adjusted: float, n: int) -> str:
    """'*' below 0.05, '**' below 0.01, '***' below 0.001; '' with fewer than RANK_SEEDS seeds."""
    if n < RANK_SEEDS:
        return ""
    for bound, mark in STARS:
        if p_adjusted < bound:
            return mark
    return ""


def seeds_needed(sd: float, *, effect: float, df_by_seed: float = 1.0) -> int:
    """The fewest seeds with which a two-sided t test at 5 % finds an effect with a power of 80 %.

    power(n) = P(T > t_{0.975, df}), T of the noncentral t distribution with df = df_by_seed (n - 1)
    degrees of freedom and noncentrality sqrt(n) effect / sd; the probability that T is below -t is
    negligible.
    Args:
        sd: of a seed's difference, in the unit of `effect`; see MeanDifference.
        df_by_seed: 1 for the paired test, up to 2 for Welch's.
    """
    # The number for a known sd, which is about two below, saves the search from 2.
    quantiles = special.ndtri(TWO_SIDED) + special.ndtri(POWER)
    n = max(2, math.floor((quantiles * sd / effect) ** 2))
    while sd and _power(n, effect / sd, df_by_seed) < POWER:
        n += 1
    return n


def more_seeds(found: MeanDifference, effect: float) -> tuple[int, int] | None:
    """The range of further seeds that detect an effect: for the ends of the 95 % interval of the
    sd.

    sd sqrt(df / chi2_{0.975, df}) to sd sqrt(df / chi2_{0.025, df}). None for fewer than
    SPREAD_SEEDS seeds.
    Args:
        effect: in nats, above 0.
    """
    if found.n < SPREAD_SEEDS:
        return None
    by_seed = found.df / (found.n - 1)
    numbers = []
    for tail in ((1 - CONFIDENCE) / 2, TWO_SIDED):  # of chi2, above the quantile
        sd = found.sd * math.sqrt(found.df / special.chdtri(found.df, tail))
        needed = seeds_needed(sd, effect=effect, df_by_seed=by_seed)
        numbers.append(max(0, needed - found.n))
    fewest, most = numbers
    return fewest, most


def _power(n: int, size: float, df_by_seed: float) -> float:
    """Power of the two-sided t test at 5 %, for an effect of `size` standard deviations."""
    df = df_by_seed * (n - 1)
    return 1 - float(special.nctdtr(df, math.sqrt(n) * size, special.stdtrit(df, TWO_SIDED)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean over tokens with its 95 % bootstrap interval over blocks of tokens; None for fewer
    than FEWEST_BLOCKS.
    """

    mean: float
    low: float | None
    high: float | None
    blocks: int


def block_interval(
    differences_N: np.ndarray, *, block: int = BLOCK, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The mean difference of two trials on one text, with its percentile bootstrap interval over
    blocks of the text.

    It describes the variation over similar texts, not over seeds. Blocks are drawn with replacement
    and weighted by their tokens, because the last one may be short. For few blocks the interval is
    too narrow: in simulations 12 blocks covered the mean in 88 % of cases, 30 in 92 %, 80 in 94 %.
    For fewer than FEWEST_BLOCKS blocks there is none.
    Args:
        differences_N: nats of each scored token, in the order of the text.
        block: tokens of a block.
    Raises: ValueError when there is no difference, or one is not a finite number.
    """
    # Here: it takes as long to import as all else that a command needs except torch.
    from scipy import stats

    sums_B, counts_B = block_sums(differences_N, block=block)
    blocks, mean = len(sums_B), float(sums_B.sum() / counts_B.sum())
    if blocks < FEWEST_BLOCKS:
        return Interval(mean=mean, low=None, high=None, blocks=blocks)
    drawn = stats.bootstrap(
        (sums_B, counts_B),
        lambda sums, counts, axis: sums.sum(axis) / counts.sum(axis),
        paired=True,
        n_resamples=resamples,
        batch=max(1, AT_ONCE // blocks),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = map(float, drawn.confidence_interval)
    return Interval(mean=mean, low=low, high=high, blocks=blocks)


def block_sums(values_N: np.ndarray, *, block: int = BLOCK) -> tuple[np.ndarray, np.ndarray]:
    """The sum and the number of values of each block. Raises as `block_interval` does."""
    if not len(values_N) or not np.isfinite(values_N).all():
        raise ValueError("expected finite differences of tokens, one or more")
    starts_B = np.arange(0, len(values_N), block)
    sums_B = np.add.reduceat(values_N.astype(np.float64), starts_B)
    return sums_B, np.diff(starts_B, append=len(values_N))
