"""`--set`: values of a suite changed on the command line."""

import pytest
from handmade import SMALL

from harness.plan import load


def test_overrides_are_applied_and_recorded(write):
    overrides = ("train.epochs=3", "seeds=[7]", "heads.1.mos.num_mixtures=[4, 5]", "train.clip=0.5", "train.lr=1e-3")
    suite = load(write(SMALL), overrides)
    assert [str(trial) for trial in suite.trials] == [
        f"{head} lstm markov seed=7" for head in ("softmax", "mos(num_mixtures=4)", "mos(num_mixtures=5)")
    ]
    train = suite.trials[0].train
    assert (train.epochs, train.clip, train.lr) == (3, 0.5, 0.001)
    assert suite.overrides == (
        ("train.epochs", "3", "2"),
        ("seeds", "[7]", "[1, 2]"),
        ("heads.1.mos.num_mixtures", "[4, 5]", "2"),
        ("train.clip", "0.5", None),
        ("train.lr", "1e-3", "0.01"),
    )


@pytest.mark.parametrize(
    "overrides",
    [
        *[("train.epochs=2",), ("train.epochs=5", "train.epochs=2"), ("resources.cpus=2",), ("train.cuda_graph=on",)],
        ("train.cuda_graph=off",),
    ],
)
def test_an_override_that_changes_no_trial_is_no_change(write, overrides):
    path = write(SMALL)
    assert load(path).trials[0].train.epochs == 2
    assert load(path, overrides).overrides == ()
    assert [trial.id for trial in load(path, overrides).trials] == [trial.id for trial in load(path).trials]
