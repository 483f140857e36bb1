"""Whether the trials of a row are converged, and whether they learned more than frequencies."""

import math
import statistics

from harness.plan.schedule import StepDecay, Warmup
from harness.plan.specs import TrainSpec
from harness.records.record import CurvePoint, TrialRecord
from harness.report.content import NOT_CONVERGED_MARK
from harness.report.row_facts import RowFacts

STILL_FALLING = 0.01  # of validation perplexity in an epoch
DECAYED = 0.25  # of the first learning rate: a rate that ends above it has not decayed
ACTIVE = 0.1  # of the highest learning rate: below it weights hardly change, whatever there is to learn
LAST_PART = 0.25  # of the epochs with an active rate
COLLAPSED = 0.95  # of the unigram model's perplexity
NOT_CONVERGED_MEANS = (
    f"{NOT_CONVERGED_MARK} not converged: validation perplexity still fell by more than {100 * STILL_FALLING:g} % an "
    "epoch, in the last epoch or while the learning rate was still high; or the best epoch is the last one although "
    "the learning rate does not decay to the end"
)
COLLAPSED_MEANS = (
    f"{NOT_CONVERGED_MARK} collapsed: test perplexity is {COLLAPSED:g} of a unigram model's or worse. Such a row is "
    "last and never bold, and a verdict on it is of this budget only"
)

SOME_COLLAPSED = (
    f"Collapsed trials of rows whose mean is not: test perplexity is {COLLAPSED:g} of a unigram model's or worse. They "
    "are part of the mean, its standard deviation and the comparisons"
)


def not_converged(record: TrialRecord) -> bool:
    """Whether validation perplexity v still fell by more than 1 % an epoch, or the best epoch is the last one.

    The fall an epoch is 1 - (v_last / v_before)^(1 / (epochs between both)), of the last epoch and the one before.

    Where the schedule lowers the learning rate to the end of training (`step`, or a `decay` after `warmup`), to at most
    a quarter of its highest value, the last epoch is the best one by design, and a rate near zero stops the fall of
    every model. So the fall also counts where the rate was still high: over the last quarter of the epochs (rounded
    up) whose rate was at least a tenth of the highest. With one such epoch nothing is known: it is not converged.

    False for a trial without a curve, which was not trained.
    """
    curve = record.curve
    if not curve:
        return False
    if len(curve) == 1 or _fall(curve[-2], curve[-1]) > STILL_FALLING:
        return True
    if not _decays_to_the_end(record.spec.train):
        best = min(curve, key=lambda point: point.valid_ppl)  # of equal epochs, the first is the best
        return curve[-1] is best
    highest = max(point.lr for point in curve)
    active = [point for point in curve if point.lr >= ACTIVE * highest]
    if len(active) == 1:
        return True
    return _fall(active[-1 - math.ceil(LAST_PART * len(active))], active[-1]) > STILL_FALLING


def _fall(before: CurvePoint, after: CurvePoint) -> float:
    """The mean relative fall of validation perplexity an epoch between two points of a curve."""
    return 1 - (after.valid_ppl / before.valid_ppl) ** (1 / (after.epoch - before.epoch))


def _decays_to_the_end(train: TrainSpec) -> bool:
    """Whether the schedule has a fixed horizon at which the learning rate is lowest, far below its highest value."""
    way = None if train.schedule is None else train.schedule.way
    if isinstance(way, StepDecay):
        return way.factor ** (math.ceil(train.epochs) - way.after) <= DECAYED
    return isinstance(way, Warmup) and way.decay != "none" and way.floor <= DECAYED


def unconverged_seeds(row: RowFacts) -> list[int]:
    """The seeds of the row's numbers whose trials are not converged."""
    return [record.spec.seed for record in row.ok if not_converged(record)]


def mostly_unconverged(row: RowFacts) -> bool:
    """Whether more than half of the row's ok trials are not converged."""
    return 2 * len(unconverged_seeds(row)) > len(row.ok_seeds)


def partly_unconverged(row: RowFacts) -> bool:
    """Whether some of the row's ok trials are not converged, and not most of them."""
    return bool(unconverged_seeds(row)) and not mostly_unconverged(row)


def collapsed(row: RowFacts) -> bool:
    """Whether the mean test perplexity is 0.95 of the unigram's or worse. Never of n-grams, which are not trained."""
    metrics = [record.metrics for record in row.ok]
    known = [each for each in metrics if "test_ppl" in each and "unigram_test_ppl" in each]
    if row.is_ngram or not known:
        return False
    ours = statistics.fmean(each["test_ppl"] for each in known)
    unigram = statistics.fmean(each["unigram_test_ppl"] for each in known)
    return ours >= COLLAPSED * unigram


def collapsed_seeds(row: RowFacts) -> list[int]:
    """The seeds whose test perplexity is 0.95 of the unigram's or worse."""
    metrics = {} if row.is_ngram else {record.spec.seed: record.metrics for record in row.ok}
    return [
        seed
        for seed, found in metrics.items()
        if found.get("test_ppl", 0) >= COLLAPSED * found.get("unigram_test_ppl", math.inf)
    ]


def mark(row: RowFacts) -> str:
    """The mark of the perplexity of a row that is collapsed or not converged; '' for others."""
    return NOT_CONVERGED_MARK if collapsed(row) or unconverged_seeds(row) else ""
