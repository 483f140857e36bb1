"""The commands on a suite with heads and n-grams."""

import json

import pytest

SUITE = """\
name: mixed
version: 1
corpora: [embedded]
backbones: [{lstm: {d_model: 4, num_layers: 1}}]
heads: [softmax]
train: {optimizer: sgd, lr: 1, epochs: 0.01, batch_size: 20, seq_len: 35}
seeds: [1]
ngrams: [{order: 2, cache: true}]
measure: {exclusive: false}
table: {baseline: softmax}
"""


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "suites" / "mixed.yaml"
    path.parent.mkdir()
    path.write_text(SUITE)
    return path


@pytest.mark.system
def test_they_are_run_listed_verified_and_sampled(harness, suite, tmp_path):
    results = ("--results", tmp_path / "results")
    ran = harness("run", suite, *results, "--executor", "inline", "--device", "cpu", "--no-tracking")
    assert ran.code == 0, ran.err
    assert "2 of 2 trials: 2 ok" in ran.out + ran.err
    (counted,) = [
        trial
        for trial in json.loads(harness("plan", suite, *results, "--json").out)["trials"]
        if trial["head"]["name"] == "kneser_ney"
    ]
    assert (counted["params_total"], counted["state"]) == (0, "ok")
    assert "1 identical" in harness("verify", counted["id"], *results).out
    assert harness("sample", counted["id"], *results, "--prompt", "it is", "--device", "cpu").out.startswith("it is")
    board = harness("leaderboard", *results)
    assert "Kneser-Ney 2, cache" in board.out
    assert "embedded, not trained, context 1000" in board.out


def test_the_lists_of_components_do_not_have_them(harness):
    assert "kneser_ney" not in harness("list", "heads").out
    assert "last_tokens" not in harness("list", "backbones").out
