"""The lean loss against the reference over an epoch of the trials' own training."""

import json

import pytest

from harness.benchmarks import agreement

SUITE = """\
name: tiny
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [{mos: {num_mixtures: 2}}]
train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}
seeds: [1]
"""


@pytest.fixture
def called(tmp_path, capsys):
    """A function: arguments -> what is printed."""
    (tmp_path / "tiny.yaml").write_text(SUITE)

    def call(*arguments):
        agreement.main(["--suite", str(tmp_path / "tiny.yaml"), "--data", str(tmp_path), *arguments])
        return json.loads(capsys.readouterr().out)

    return call


@pytest.mark.parametrize("changes", [(), ("--set", "train.shuffle=true")])
def test_an_epoch_of_both_agrees(called, changes):
    found = called("--trial", "0", *changes)
    assert found["steps"] > 5
    assert max(found["loss, lean against reference, after 1 10 25 50 steps and at most"]) < 1e-4
    assert found["valid ppl, lean"] == pytest.approx(found["valid ppl, reference"], rel=1e-4)
    assert called("--trial", "0", "--steps", "3")["steps"] == 3


@pytest.mark.parametrize("number", ["1", "-1"])
def test_a_trial_that_is_not_there_is_told(called, capsys, number):
    with pytest.raises(SystemExit) as left:
        called(f"--trial={number}")
    assert left.value.code == 2
    assert f"--trial {number}: " in capsys.readouterr().err
