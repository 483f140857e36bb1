"""Tests and intervals for the difference of two heads over seeds.

A difference is one of log perplexities, which are mean nats per token, head minus baseline; as a change of perplexity
it is exp(difference) - 1. Two tests exist: the paired t test takes the difference of each seed, Welch's test takes the
two means. A suite declares one of them (`table.test`).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanDifference:
    """The mean difference of log perplexity over shared seeds, head less baseline, in nats.

    Args:
        n: seeds.
        mean: the difference of the means, which is the mean of the differences.
        sd: of a seed's difference: of the pairs, or sqrt(s_1^2 + s_2^2) for Welch's test. None for one seed, as are
            all below.
        df: degrees of freedom.
        low, high: the 95 % t interval of the mean.
        p_t: of the two-sided t test.
        below, above: how much lower and higher the difference may be at settings that tuning did not try, in nats: the
            tuning gaps of the head and of the baseline.
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
        """p of the two-sided t test that the difference is 0 at some of these settings; None for one seed.

        p = 2 P(T > (|mean| - gap) / error), with the gap towards 0: `above` of a negative mean, `below` of a positive
        one. 1 if the gap is as large as the mean. Without gaps it is p_t.
        """
        if self.p_t is None:
            return None
        beyond = abs(self.mean) - (self.above if self.mean < 0 else self.below)
        if beyond <= 0:
            return 1.0
        return 2 * float(special.stdtr(self.df, -beyond / self.error)) if self.error else 0.0

    @property
    def reverse(self) -> "MeanDifference":
        """The difference of the baseline less the head."""
        ends = (None, None) if self.low is None else (-self.high, -self.low)
        return replace(self, mean=-self.mean, low=ends[0], high=ends[1], below=self.above, above=self.below)


def paired(differences: Sequence[float]) -> MeanDifference:
    """The paired t test of the differences over n seeds.

    t = mean / (sd / sqrt(n)) with n - 1 degrees of freedom; interval mean -+ t_{0.975} sd / sqrt(n). If all differences
    are equal, p is 1 for differences of 0, else 0.
    Raises: ValueError when there is no difference, or one is not a finite number.
    """
    n, mean = len(differences), _mean(differences)
    if n == 1:
        return MeanDifference(n=1, mean=mean)
    return _tested(n, mean, math.sqrt(_variance(differences)), n - 1)


def welch(ours: Sequence[float], theirs: Sequence[float]) -> MeanDifference:
    """Welch's t test of two heads over the same n seeds, which ignores the pairs: ours less theirs.

    t = mean / sqrt((s_1^2 + s_2^2) / n) with (n - 1) (s_1^2 + s_2^2)^2 / (s_1^4 + s_2^4) degrees of freedom.
    Raises: ValueError as `paired` does, or when the numbers of seeds differ.
    Source: Welch (1947), The generalization of Student's problem, Biometrika 34.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"expected the same seeds of both, got {len(ours)} and {len(theirs)}")
    n, mean = len(ours), _mean(ours) - _mean(theirs)
    if n == 1:
        return MeanDifference(n=1, mean=mean)
    one, other = _variance(ours), _variance(theirs)
    largest = max(one, other)
    share = min(one, other) / largest if largest else 1.0  # the squares of small variances would be 0
    df = (n - 1) * (1 + share) ** 2 / (1 + share**2)
    return _tested(n, mean, math.sqrt(one + other), df)


def equivalence(found: MeanDifference, margin: float) -> float:
    """p of the two one-sided t tests of |difference| < margin, for two seeds or more: the larger of both.

    p = max(P(T > (mean - below + margin) / error), P(T < (mean + above - margin) / error)), T of the t distribution
    with df degrees of freedom. If all differences are equal, p is 0 for a difference within the margin, else 1.
    Args:
        margin: in nats, above 0.
    Source: Schuirmann (1987), A comparison of the two one-sided tests procedure ..., J. Pharmacokin. Biopharm. 15.
    """
    beyond = max(found.mean + found.above, found.below - found.mean) - margin  # of the end that is nearer to its bound
    if not found.error:
        return float(beyond >= 0)
    return float(special.stdtr(found.df, beyond / found.error))


def sign_flip(differences: Sequence[float]) -> tuple[float, int]:
    """p of the two-sided sign-flip test of two seeds or more, and the number of patterns of signs.

    p is the share of patterns under which the mean is as far from 0, exact up to EXACT_SEEDS seeds; of more seeds,
    DRAWN_PATTERNS patterns are drawn.
    """
    n, given = len(differences), np.array(differences, dtype=np.float64)
    if n <= EXACT_SEEDS:
        patterns = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)  # the bits of a number are a pattern
        found, observed = np.abs((patterns * given).mean(axis=1)), abs(given.mean())
        return float(np.mean(found >= observed - ROUNDING * np.abs(given).mean())), 2**n

    from scipy import stats  # here: it takes as long to import as everything else that a command needs except torch

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
    """Pearson's correlation over seeds. None for fewer than three seeds, or if one head has no spread.

    Pairs reduce the variance of a difference only if it is above 0. `statistics.correlation` rounds otherwise from
    Python 3.12 on: the same records must give the same table.
    """
    if len(ours) < CORRELATED_SEEDS or min(statistics.stdev(ours), statistics.stdev(theirs)) == 0:
        return None
    x, y = ([value - math.fsum(values) / len(values) for value in values] for values in (ours, theirs))
    covariance, *variances = (math.fsum(map(operator.mul, a, b)) for a, b in ((x, y), (x, x), (y, y)))
    return covariance / math.sqrt(math.prod(variances))


def _tested(n: int, mean: float, sd: float, df: float) -> MeanDifference:
    """The t test and interval of a mean with the standard error sd / sqrt(n)."""
    error = sd / math.sqrt(n)
    reach = error * float(special.stdtrit(df, TWO_SIDED))
    p = 2 * float(special.stdtr(df, -abs(mean) / error)) if error else float(mean == 0)
    return MeanDifference(n=n, mean=mean, sd=sd, df=df, low=mean - reach, high=mean + reach, p_t=p)


def _variance(values: Sequence[float]) -> float:
    """The sample variance; exactly 0 for equal numbers. statistics.variance takes ten times as long, by fractions."""
    mean = statistics.fmean(values)
    return 0.0 if min(values) == max(values) else math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1)


def _mean(values: Sequence[float]) -> float:
    if not values or not all(map(math.isfinite, values)):
        raise ValueError(f"expected finite differences, one or more, got {list(values)}")
    return statistics.fmean(values)
