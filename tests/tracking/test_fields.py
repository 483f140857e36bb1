"""What a run shows of a record."""

from harness.tracking import fields


def test_a_run_is_named_by_what_differs_and_seeds_share_a_row(suite, record_of):
    first, second = (record_of(trial) for trial in suite.trials[2:4])  # mos under seeds 1 and 2
    assert fields.name(first) == "mos(num_mixtures=2, dropout=0.1), lstm, markov, seed 1"
    assert fields.tags(first)["row"] == fields.tags(second)["row"]
    tuning = second.model_copy(update={"tuning": True})
    assert fields.name(tuning) == "mos(num_mixtures=2, dropout=0.1), lstm, markov, seed 2, tuning"
    assert fields.tags(tuning)["row"] != fields.tags(second)["row"]
