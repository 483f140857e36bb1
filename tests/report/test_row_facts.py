"""Rows: trials that differ in their seed only, in the order of the suite; their times, and what is said of these."""

import handmade
import pytest
import rounding
from bundles import timing_of
from made_tables import with_records

from harness.records.sidecars import Timing
from harness.report.row_facts import Time, reduction, rows, time_of

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


def test_rows_stand_in_the_order_of_the_suite(suite_of):
    found = rows(suite_of(SUITE), {})
    # corpora outermost, then backbones, then heads; mos without a parameter has K = 10 by default
    heads = ["MoS 3", "softmax", "MoS 10"]
    expected = [
        (f"markov, vocab_size {size}", backbone, head)
        for size in (12, 10)
        for backbone in ("lstm", "transformer_encoder")
        for head in heads
    ]
    assert [(row.corpus, row.backbone, row.head) for row in found] == expected
    assert all([trial.seed for trial in row.trials] == [3, 1, 2] for row in found)


def test_the_order_does_not_depend_on_the_records(suite_of, record_of):
    suite = suite_of(SUITE)
    some = {trial.id: record_of(trial) for trial in reversed(suite.trials[4:])}
    assert [row.head for row in rows(suite, some)] == [row.head for row in rows(suite, {})]


def test_a_single_head_shows_all_that_the_suite_gives_it(suite_of):
    text = SUITE.replace("  - softmax\n  - mos\n", "").replace("[12, 10]", "12")
    (first, _) = rows(suite_of(text), {})
    assert (first.corpus, first.backbone, first.head) == ("markov", "lstm", "MoS 3")


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


@pytest.mark.guards("invalid-row")
def test_a_row_with_an_invalid_trial_has_no_values_whatever_its_others_say(suite_of, record_of):
    suite = suite_of(SUITE)
    three, one, two = of_head(suite, "softmax")
    made = [record_of(three, test_ppl=30.0), record_of(one, "invalid", test_ppl=1.0), record_of(two, test_ppl=20.0)]
    row = rows(suite, {record.id: record for record in made})[1]
    assert row.invalid
    assert (row.ok_seeds, row.values("test_ppl")) == ([], [])
    assert row.state == "2/3: 1 invalid"


def test_a_row_is_uncertified_where_one_of_its_ok_records_is(suite_of, record_of):
    suite = suite_of(SUITE)
    three, one, two = of_head(suite, "softmax")
    made = {each.id: record_of(each) for each in (three, one)}
    assert not rows(suite, made)[1].uncertified
    made[two.id] = record_of(two, "diverged")  # has none, and no number in the table
    assert not rows(suite, made)[1].uncertified
    made[two.id] = record_of(two).model_copy(update={"certificate": None})
    assert rows(suite, made)[1].uncertified


def test_a_row_is_certified_earlier_where_one_of_its_certificates_does_not_say_what_was_asked(suite_of, record_of):
    suite = suite_of(SUITE)
    three, one, two = of_head(suite, "softmax")
    made = {each.id: record_of(each) for each in (three, one, two)}
    assert not rows(suite, made)[1].certified_earlier
    earlier = handmade.certificate(drawn={})
    made[two.id] = record_of(two).model_copy(update={"certificate": earlier})
    assert rows(suite, made)[1].certified_earlier


def two_rows(suite, record_of, softmax: list, mos: list):
    """The rows of softmax and mos, of test perplexities for seeds 3, 1, 2; None: diverged."""
    made = {}
    for name, values in {"softmax": softmax, "mos": mos}.items():
        for trial, value in zip(of_head(suite, name), values, strict=True):
            made[trial.id] = record_of(trial, "diverged") if value is None else record_of(trial, test_ppl=value)
    found = rows(suite, made)
    return found[1], found[0]


def test_reduction_is_of_the_means_over_all_seeds(suite_of, record_of):
    baseline, mos = two_rows(suite_of(SUITE), record_of, [90.0, 100.0, 110.0], [81.0, 80.0, 109.0])
    # means 100 and 90: (100 - 90) / 100; a mean of ratios would be (0.1 + 0.2 + 1/110) / 3 = 0.103
    assert reduction(mos, baseline) == pytest.approx(0.1, rel=0, abs=rounding.bound(3))


def test_reduction_uses_shared_seeds_only(suite_of, record_of):
    baseline, mos = two_rows(suite_of(SUITE), record_of, [None, 100.0, 110.0], [10.0, 80.0, 99.0])
    # seeds 1 and 2: means 105 and 89.5; 15.5 / 105
    assert reduction(mos, baseline) == pytest.approx(15.5 / 105, rel=0, abs=rounding.bound(3))


def test_there_is_no_reduction_without_shared_seeds_or_against_itself(suite_of, record_of):
    baseline, mos = two_rows(suite_of(SUITE), record_of, [None, 100.0, None], [10.0, None, 99.0])
    assert reduction(mos, baseline) is None
    assert reduction(baseline, baseline) is None
    assert reduction(mos, None) is None


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


def test_an_exclusive_timing_stands_before_what_the_trials_noted(row_of):
    row = row_of(shared=True)
    found = time_of(row, TRAIN, {row.spec.id: timing(row.spec)})
    assert found == Time(value=5.0, spread=0.5, exclusive=True, device="a processor", threads=1, pass_id="first")


def test_without_a_timing_a_time_is_the_mean_over_seeds_marked_where_trials_shared_the_machine(row_of):
    # 10 and 20 ms: mean 15, standard deviation sqrt(2 * 5 ** 2 / 1) = 7.0711
    for shared in (True, False):
        found = time_of(row_of(shared=shared), TRAIN, {})
        assert (found.value, found.exclusive, found.pass_id) == (15.0, not shared, None)
        assert found.spread == pytest.approx(7.0711, abs=1e-4)
        assert found.device == "a processor"


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


def test_one_seed_has_no_spread(row_of):
    found = time_of(row_of(("ok", "diverged")), TRAIN, {})
    assert (found.value, found.spread) == (10.0, None)


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


def test_a_metric_that_nobody_measured_has_no_time(row_of):
    row = row_of()
    assert time_of(row, "inference_ms_per_batch", {row.spec.id: timing(row.spec)}) is None
    assert time_of(row_of(()), TRAIN, {}) is None
