"""The metrics of A and B, and their differences."""

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from harness.printable import counted
from harness.records import sidecars
from harness.records.metrics import METRICS, metrics_of
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing, TokenScores
from harness.report.diff.pairs import Selection
from harness.report.evidence.blocks import BLOCK, Interval, block_interval
from harness.report.evidence.gains import differences
from harness.report.evidence.power import more_seeds
from harness.report.evidence.statistics import WIDEST, paired, sign_flip

EFFECT = math.log1p(0.01)  # nats: one per cent of perplexity


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDifference:
    """A metric of A and B.

    Args:
        a, b: means over the trials.
        n: pairs of trials.
        change: b / a - 1, of geometric means: exp(mean difference of logarithms) - 1.
        low, high: its 95 % interval: a t interval over seeds, or for one pair's test perplexity a bootstrap interval
            over blocks of tokens; None if there is neither.
        over: what the interval was computed over: '8 seeds', '12 blocks of 1,000 tokens', or ''.
        p_t, p_sign_flip: of the paired t test and of the sign-flip test; for perplexities only.
        more_seeds: the range of further seeds that detect a difference of 1 %, see harness.report.evidence.power.
    """

    name: str
    a: float
    b: float
    n: int
    change: float
    low: float | None = None
    high: float | None = None
    over: str = ""
    p_t: float | None = None
    p_sign_flip: float | None = None
    more_seeds: tuple[int, int] | None = None

    @property
    def too_wide(self) -> bool:
        """Whether the ends of the interval are further apart than tables write out."""
        return self.low is not None and 1 + self.high > WIDEST * (1 + self.low)


def results(a: Selection, b: Selection, scores: tuple[TokenScores, TokenScores] | None) -> list[MetricDifference]:
    """The differences of scores, counts and settings.

    Args:
        scores: token scores, for an interval if there is a single pair.
    Raises: RecordError when the scores are of two test splits.
    """
    pairs = [(one.metrics, other.metrics) for one, other in _pairs(a, b)]
    one_counting = all(each.get("test_ppl_standard") == each.get("test_ppl") for pair in pairs for each in pair)
    names = _names("score", "count", "setting")
    found = list(_compared([name for name in names if name != "test_ppl_standard" or not one_counting], pairs))
    if len(a.records) > 1 or scores is None:
        return found
    over = block_interval(differences(*scores).nats)
    return [_with_blocks(each, over) if each.name == "test_ppl" else each for each in found]


def costs(a: Selection, b: Selection) -> tuple[list[MetricDifference], list[str]]:
    """The differences of times and memory measured on one device, and notes on how they were measured.

    Raises: RecordError when a timing does not verify.
    """
    pairs = [(one, other) for one, other in _pairs(a, b) if _machine(one) == _machine(other)]
    if not pairs:
        one, other = (_machine(each.records[0]) for each in (a, b))
        return [], [f"times and memory are not compared: {a.label} was measured on {one}, {b.label} on {other}"]
    exclusive = _exclusive(a, b)
    if exclusive is None:
        shared = any(record.environment.shared for pair in pairs for record in pair)
        note = "ms/batch: measured during training" + (", while other work ran on the machine" if shared else "")
        return list(_compared(_names("cost"), [(one.metrics, other.metrics) for one, other in pairs])), [note]
    timed = [name for name in _names("cost") if METRICS[name].timed]
    untimed = [name for name in _names("cost") if not METRICS[name].timed]
    times = _compared(timed, [(exclusive[0].metrics, exclusive[1].metrics)])
    others = _compared(untimed, [(one.metrics, other.metrics) for one, other in pairs])
    sharing = ", while other work ran on the machine" if any(timing.shared for timing in exclusive) else ""
    return [*times, *others], [
        f"ms/batch: of one exclusive pass after training, in {exclusive[0].rounds} rounds{sharing}"
    ]


def _names(*kinds: str) -> list[str]:
    """The metrics of some kinds that `harness diff` compares."""
    return [metric.name for metric in metrics_of(*kinds) if metric.diff]


def _pairs(a: Selection, b: Selection) -> Iterable:
    return zip(a.records, b.records, strict=True)


def _compared(names: Iterable[str], pairs: list[tuple[dict[str, float], dict[str, float]]]) -> Iterator:
    """The difference of each metric, over the pairs in which both values are above 0."""
    for name in names:
        both = [(one[name], other[name]) for one, other in pairs if min(one.get(name, 0), other.get(name, 0)) > 0]
        if not both:
            continue
        logs = [math.log(theirs) - math.log(ours) for ours, theirs in both]
        test = paired(logs)
        tests = {"n": test.n, "change": math.expm1(test.mean)}
        if test.sd:
            tests |= {"low": math.expm1(test.low), "high": math.expm1(test.high), "over": counted(test.n, "seed")}
        if test.sd is not None and METRICS[name].unit == "perplexity":
            tests |= {"p_t": test.p_t, "p_sign_flip": sign_flip(logs)[0], "more_seeds": more_seeds(test, EFFECT)}
        yield MetricDifference(
            name=name, a=statistics.fmean(one for one, _ in both), b=statistics.fmean(x for _, x in both), **tests
        )


def _with_blocks(of: MetricDifference, over: Interval) -> MetricDifference:
    if over.low is None:
        return of
    text = f"{counted(over.blocks, 'block')} of {BLOCK:,} tokens"
    return replace(of, low=math.expm1(over.low), high=math.expm1(over.high), over=text)


def _exclusive(a: Selection, b: Selection) -> tuple[Timing, Timing] | None:
    """A timing of each, of one pass. Only one trial of a head is timed: times do not depend on the seed."""
    ours, theirs = ([sidecars.TIMING.load(each.runs, record) for record in each.records] for each in (a, b))
    passes = {timing.pass_id: timing for timing in theirs if timing is not None}
    return next(((one, passes[one.pass_id]) for one in ours if one is not None and one.pass_id in passes), None)


def _machine(record: TrialRecord) -> str:
    """The device and threads: only times on the same ones are compared."""
    return f"{record.environment.device}, {counted(record.environment.threads, 'thread')}"
