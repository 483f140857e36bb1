"""Times of a row: an exclusive pass before what the trials noted, and each with what must be said of it."""

import handmade
import pytest
from bundles import timing_of

from harness.records.sidecars import Timing
from harness.report.table_rows import Time, rows, time_of

SUITE = """\
name: suite
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax]
train: {optimizer: sgd, lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2, 3]
"""
TRAIN = "train_ms_per_batch"


def timing(trial, **changes) -> Timing:
    metrics = {TRAIN: 5.0, f"{TRAIN}_iqr": 0.5}
    about = {"trial": trial.id, "weights_sha256": "w", "metrics": metrics, "passed": "first", "busy": 0.1}
    return timing_of(handmade.record(), **{**about, **changes})


@pytest.fixture
def row_of(suite_of, record_of):
    """A function: by seed its status and environment's changes -> the row, where trial `seed` took 10 * seed ms."""

    def make(statuses: tuple[str, ...] = ("ok", "ok"), **environment):
        suite = suite_of(SUITE)
        made = {
            trial.id: record_of(trial, status, environment=environment, **{TRAIN: 10.0 * trial.seed})
            for trial, status in zip(suite.trials, statuses, strict=False)
        }
        return rows(suite, made)[0]

    return make


def test_an_exclusive_timing_stands_before_what_the_trials_noted(row_of):
    row = row_of(shared=True)
    found = time_of(row, TRAIN, {row.trials[0].id: timing(row.trials[0])})
    assert found == Time(value=5.0, spread=0.5, exclusive=True, device="a processor", pass_id="first")


def test_without_a_timing_a_time_is_the_mean_over_seeds_marked_where_trials_shared_the_machine(row_of):
    # 10 and 20 ms: mean 15, standard deviation sqrt(2 * 5 ** 2 / 1) = 7.0711
    for shared in (True, False):
        found = time_of(row_of(shared=shared), TRAIN, {})
        assert (found.value, found.exclusive, found.pass_id) == (15.0, not shared, None)
        assert found.spread == pytest.approx(7.0711, abs=1e-4)
        assert found.device == "a processor"


def test_one_seed_has_no_spread(row_of):
    found = time_of(row_of(("ok", "diverged")), TRAIN, {})
    assert (found.value, found.spread) == (10.0, None)


def test_a_timing_beside_other_work_does_not_stand_for_the_row(row_of):
    row = row_of(shared=False)  # nothing of ours ran beside its trials, but the pass saw what did
    found = time_of(row, TRAIN, {row.trials[0].id: timing(row.trials[0], shared=True, busy=1.9)})
    assert (found.value, found.exclusive, found.pass_id) == (15.0, False, None)


def test_the_newest_timing_counts_and_none_of_a_trial_that_is_not_ok(row_of):
    row = row_of(("ok", "ok", "diverged"))
    first, second, third = row.trials
    late = timing(second, passed="second", taken="2026-01-03T00:00:00+00:00", metrics={TRAIN: 6.0})
    bad = timing(third, passed="third", taken="2026-01-04T00:00:00+00:00", metrics={TRAIN: 7.0})
    found = time_of(row, TRAIN, {each.trial: each for each in (timing(first), late, bad)})
    assert (found.value, found.spread, found.pass_id) == (6.0, None, "second")


def test_a_metric_that_nobody_measured_has_no_time(row_of):
    row = row_of()
    assert time_of(row, "inference_ms_per_batch", {row.trials[0].id: timing(row.trials[0])}) is None
    assert time_of(row_of(()), TRAIN, {}) is None
