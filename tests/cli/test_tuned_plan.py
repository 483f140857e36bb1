"""`harness plan` of a suite with `tune`: both stages, before and after points are chosen."""

import json
import re

import pytest

SUITE = """\
name: tuned
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax, {mos: {num_mixtures: 2}}]
train: {optimizer: sgd, lr: 1.0, epochs: 3, batch_size: 4, seq_len: 7}
seeds: [1, 2]
tune: {epochs: 1, seed: 9, space: {train.lr: [0.5, 1.0], head.dropout: [0, 0.25]}}
"""


@pytest.fixture
def suite(tmp_path):
    """The path of the suite: two points of softmax, four of mos."""
    place = tmp_path / "tuned.yaml"
    place.write_text(SUITE)
    return place


def stages(harness, *arguments) -> dict:
    done = harness("plan", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_before_tuning_the_trials_of_the_table_have_no_ids(suite, tmp_path, harness):
    found = stages(harness, suite, "--results", tmp_path)
    assert [(trial["head"]["name"], trial["point"]) for trial in found["tuning"]] == [
        ("softmax", {"train.lr": 0.5}),
        ("softmax", {"train.lr": 1.0}),
        *(("mos", {"train.lr": lr, "head.dropout": dropout}) for lr in (0.5, 1.0) for dropout in (0, 0.25)),
    ]
    assert {(trial["seed"], trial["state"]) for trial in found["tuning"]} == {(9, "missing")}
    assert found["trials"] == []
    assert [(each["head"], each["seeds"]) for each in found["after_tuning"]] == [
        ("softmax", [1, 2]),
        ("mos(num_mixtures=2)", [1, 2]),
    ]
    done = harness("plan", suite, "--results", tmp_path)
    assert "after tuning" in done.out
    assert re.findall(r"(softmax|MoS 2) .* (\d missing) +(\d after tuning)", done.out) == [
        ("softmax", "2 missing", "2 after tuning"),
        ("MoS 2", "4 missing", "2 after tuning"),
    ]
    assert (
        "stage 1, tuning: 6 trials, 6 to run, 1 epoch each; "
        "stage 2, the table: 0 trials, 0 to run, 4 more after tuning, 3 epochs each"
    ) in done.out.splitlines()


@pytest.mark.system
def test_the_time_of_both_stages(suite, tmp_path, harness, known_times):
    known_times({"softmax": 4000.0, "mos": 8000.0}, 2000.0)
    options = (suite, "--results", tmp_path, "--data", tmp_path, "--time", "--device", "cpu")
    # An epoch has 15 steps; each trial validates after each epoch and has two tests of one batch. Seconds:
    tuning = 2 * (15 * 4 + 3 * 2), 4 * (15 * 8 + 3 * 2)
    table = 2 * (45 * 4 + 5 * 2), 2 * (45 * 8 + 5 * 2)
    found = json.loads(harness("plan", *options, "--json").out)
    assert found["minutes_to_run"] == pytest.approx(sum(tuning + table) / 60)
    # 636 and 1,120 seconds
    assert "to run, one trial after the other: 29.3 min" in harness("plan", *options).out.splitlines()
