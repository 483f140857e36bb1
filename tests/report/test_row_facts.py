"""Rows: trials that differ in their seed only, in the order of the suite; their times, and what is said of these."""

import handmade
import pytest
import rounding
from bundles import timing_of
from made_tables import with_records

from harness.records.sidecars import Timing
from harness.report.row_facts import reduction, rows, time_of

SUITE = """\
name: suite
version: 1
corpora:
  - markov: {vocab_size: [12, 10], num_tokens: 400, branching: 3}
backbones:
  - lstm: {d_model: 8, num_layers: 1}
  - transformer_encoder: {d_model: 8, num_layers: 1, num_heads: 2, d_ff: 8}
heads:
  - mos: {num_mixtures: 3}
  - softmax
  - mos
train: {optimizer: sgd, lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [3, 1, 2]
"""


def of_head(suite, name: str):
    """The trials of a head in the first corpus and backbone, in the order of seeds 3, 1, 2."""
    return [trial for trial in suite.trials[:9] if trial.head.name == name][:3]


def test_values_are_of_ok_trials_in_the_order_of_seeds(suite_of, record_of):
    suite = suite_of(SUITE)
    three, one, two = of_head(suite, "softmax")
    made = [
        record_of(three, test_ppl=30.0),
        record_of(one, "diverged", test_ppl=10.0),
        record_of(two, test_ppl=20.0, eval_ms_per_batch=1.5),
    ]
    row = rows(suite, {record.id: record for record in made})[1]
    assert row.ok_seeds == [3, 2]
    assert row.values("test_ppl") == [30.0, 20.0]
    assert row.values("test_ppl", [2]) == [20.0]
    assert row.values("eval_ms_per_batch") == [1.5]  # a metric that one of them lacks


def two_rows(suite, record_of, softmax: list, mos: list):
    """The rows of softmax and mos, of test perplexities for seeds 3, 1, 2; None: diverged."""
    made = {}
    for name, values in {"softmax": softmax, "mos": mos}.items():
        for trial, value in zip(of_head(suite, name), values, strict=True):
            made[trial.id] = record_of(trial, "diverged") if value is None else record_of(trial, test_ppl=value)
    found = rows(suite, made)
    return found[1], found[0]


@pytest.mark.parametrize(
    ("softmax", "mos", "expected"),
    [
        ([90.0, 100.0, 110.0], [81.0, 80.0, 109.0], 0.1),  # means 100 and 90; the mean of ratios would be 0.103
        ([None, 100.0, 110.0], [10.0, 80.0, 99.0], 15.5 / 105),  # of shared seeds only: means 105 and 89.5
        ([None, 100.0, None], [10.0, None, 99.0], None),
    ],
)
def test_reduction_is_of_the_means_over_shared_seeds(suite_of, record_of, softmax, mos, expected):
    baseline, row = two_rows(suite_of(SUITE), record_of, softmax, mos)
    assert reduction(row, baseline) == (expected and pytest.approx(expected, rel=0, abs=rounding.bound(3)))
    assert reduction(baseline, baseline) is None


ONE_HEAD = handmade.suite_text(seeds="[1, 2, 3, 4]")
TRAIN = "train_ms_per_batch"


def timing(trial, **changes) -> Timing:
    metrics = {TRAIN: 5.0, f"{TRAIN}_iqr": 0.5}
    about = {"trial": trial.id, "weights_sha256": "w", "metrics": metrics, "passed": "first", "busy": 0.1}
    return timing_of(handmade.record(), **{**about, **changes})


@pytest.fixture
def row_of(suite_of, record_of):
    """A function: by seed its status and environment's changes -> the row, where trial `seed` took 10 * seed ms."""

    def make(statuses: tuple[str, ...] = ("ok", "ok"), **environment):
        suite = suite_of(ONE_HEAD)
        made = {
            trial.id: record_of(trial, status, environment=environment, **{TRAIN: 10.0 * trial.seed})
            for trial, status in zip(suite.trials, statuses, strict=False)
        }
        return rows(suite, made)[0]

    return make


@pytest.mark.parametrize(
    ("threads", "milliseconds", "taken", "left_out"),
    [
        ((1, 2, 2), 25.0, 2, 1),  # seeds 2 and 3, which took 20 and 30 ms
        ((2, 1, 2, 1), 30.0, 1, 2),  # as many of each: those of fewer threads, seeds 2 and 4
        ((4, 4, 4), 20.0, 4, 0),
    ],
)
def test_times_of_different_numbers_of_threads_are_never_averaged(row_of, threads, milliseconds, taken, left_out):
    row = row_of(("ok",) * len(threads))
    records = {}
    for seed, number in enumerate(threads, start=1):
        environment = row.records[seed].environment.model_copy(update={"threads": number, "shared": number != taken})
        records[seed] = row.records[seed].model_copy(update={"environment": environment})
    found = time_of(with_records(row, records), TRAIN, {})
    assert (found.value, found.threads, found.left_out, found.exclusive) == (milliseconds, taken, left_out, True)


def test_a_timing_beside_other_work_does_not_stand_for_the_row(row_of):
    row = row_of(shared=False)  # nothing of ours ran beside its trials, but the pass saw what did
    found = time_of(row, TRAIN, {row.spec.id: timing(row.spec, shared=True, busy=1.9)})
    assert (found.value, found.exclusive, found.pass_id) == (15.0, False, None)


def test_the_newest_timing_counts_and_none_of_a_trial_that_is_not_ok(row_of):
    row = row_of(("ok", "ok", "diverged"))
    first, second, third = row.trials[:3]
    late = timing(second, passed="second", taken="2026-01-03T00:00:00+00:00", metrics={TRAIN: 6.0})
    bad = timing(third, passed="third", taken="2026-01-04T00:00:00+00:00", metrics={TRAIN: 7.0})
    found = time_of(row, TRAIN, {each.trial: each for each in (timing(first), late, bad)})
    assert (found.value, found.spread, found.pass_id) == (6.0, None, "second")
