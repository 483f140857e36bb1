"""What a run shows of a record."""

import pytest

from harness.tracking import fields


def test_a_run_is_named_by_what_differs_and_seeds_share_a_row(suite, record_of):
    first, second = (record_of(trial) for trial in suite.trials[2:4])  # mos under seeds 1 and 2
    assert fields.name(first) == "mos(num_mixtures=2, dropout=0.1), lstm, markov, seed 1"
    assert fields.tags(first)["row"] == fields.tags(second)["row"]
    tuning = second.model_copy(update={"tuning": True})
    assert fields.name(tuning) == "mos(num_mixtures=2, dropout=0.1), lstm, markov, seed 2, tuning"
    assert fields.tags(tuning)["row"] != fields.tags(second)["row"]


@pytest.mark.parametrize(
    ("metrics", "size"),
    [
        ({"params_total": 1500.0, "params_head": 300.0}, "1200"),
        ({"params_total": 1900.0, "params_head": 700.0}, "1200"),  # a larger head on the same backbone
        ({"params_total": 5000.0, "params_head": 900.0}, "4100"),
        ({}, None),  # of a trial that failed before they were counted
    ],
)
def test_heads_of_one_size_of_a_ladder_share_a_tag(suite, record_of, metrics, size):
    record = record_of(suite.trials[0], metrics=metrics)
    assert fields.tags(record).get("size") == size
