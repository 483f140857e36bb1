"""The metrics of A and B."""

import math
from pathlib import Path

import handmade
import numpy as np
import pytest

from harness.records.sidecars import TokenScores
from harness.report.diff import MetricDifference, Selection, costs, results

SUITE = handmade.suite_text(heads="[softmax, mos]", seeds="[1, 2, 3]")


@pytest.fixture
def sides(suite_of, record_of):
    """A function: metrics of softmax and of mos for seeds 1, 2 ... -> A and B."""
    trials = suite_of(SUITE).trials

    def build(ours: list[dict], theirs: list[dict]) -> tuple[Selection, Selection]:
        one, other = (
            tuple(record_of(trial, **metrics) for trial, metrics in zip(trials[start:], each, strict=False))
            for start, each in ((0, ours), (3, theirs))
        )
        runs = Path("nowhere")
        return Selection(label="softmax", runs=runs, records=one), Selection(label="mos", runs=runs, records=other)

    return build


def scores(nll) -> TokenScores:
    ones = np.ones(len(nll), dtype=np.int32)
    return TokenScores(nll=np.asarray(nll, dtype=np.float32), count=ones, offset=ones)


def test_one_pair_has_an_interval_over_blocks_of_its_test_perplexity_only(sides):
    one, other = sides([{"test_ppl": 100.0, "valid_ppl": 100.0}], [{"test_ppl": 110.0, "valid_ppl": 110.0}])
    levels = np.random.default_rng(1).normal(math.log(1.1), 0.05, 400)
    found = {each.name: each for each in results(one, other, (scores(np.zeros(400_000)), scores(levels.repeat(1_000))))}
    ppl, error = found["test_ppl"], levels.std() / 20
    assert ppl.over == "400 blocks of 1,000 tokens"
    assert math.log1p(ppl.low) == pytest.approx(levels.mean() - 1.96 * error, abs=0.1 * error)
    assert math.log1p(ppl.high) == pytest.approx(levels.mean() + 1.96 * error, abs=0.1 * error)
    assert ppl.change == pytest.approx(0.1)
    assert (found["valid_ppl"].low, found["valid_ppl"].over) == (None, "")


def test_a_metric_is_compared_over_the_pairs_that_have_it(sides):
    one, other = sides(
        [{"test_ppl_word": 100.0}, {"test_ppl_word": 50.0}, {}], [{"test_ppl_word": 120.0}, {}, {"test_ppl_word": 9.0}]
    )
    (found,) = [each for each in results(one, other, None) if each.name == "test_ppl_word"]
    assert (found.a, found.b, found.n, found.change) == (100, 120, 1, pytest.approx(0.2))


def test_standard_counting_is_shown_where_it_counts_otherwise(sides):
    def names(standard: float) -> list[str]:
        ppl = [{"test_ppl": 100.0, "test_ppl_standard": standard}]
        return [each.name for each in results(*sides(ppl, ppl), None)]

    assert names(100.0) == ["test_ppl"]
    assert names(101.0) == ["test_ppl", "test_ppl_standard"]


def test_equal_sizes_have_no_interval_and_no_test(sides):
    one, other = sides([{"params_total": 200}] * 3, [{"params_total": 210}] * 3)
    (found,) = results(one, other, None)
    assert (found.change, found.low, found.over, found.p_t, found.n) == (pytest.approx(0.05), None, "", None, 3)


def test_what_sharing_did_to_times_is_said(sides):
    one, other = sides([{"train_ms_per_batch": 4.0}], [{"train_ms_per_batch": 6.0}])
    found, (note,) = costs(one, other)
    assert [(each.name, each.change) for each in found] == [("train_ms_per_batch", pytest.approx(0.5))]
    assert note == "ms/batch: measured during training"
    shared = other.records[0].environment.model_copy(update={"shared": True})
    shares = Selection(
        label="mos", runs=other.runs, records=(other.records[0].model_copy(update={"environment": shared}),)
    )
    assert costs(one, shares)[1] == ["ms/batch: measured during training, while other work ran on the machine"]


@pytest.mark.parametrize(
    ("low", "high", "wide"),
    [(-0.5, 0.99, False), (-0.5, 1.01, True), (-1.0, 4e10, True), (1.4, 1.6, False), (None, None, False)],
)
def test_an_interval_is_too_wide_when_its_ends_are_further_apart_than_by_a_factor_of_4(low, high, wide):
    found = MetricDifference(name="test_ppl", a=1.0, b=1.0, n=2, change=0.0, low=low, high=high)
    assert found.too_wide == wide  # (1 + high) / (1 + low) is 3.98, 4.02, infinite, 1.08
