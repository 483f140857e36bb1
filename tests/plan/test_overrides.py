"""`--set`: values of a suite changed on the command line."""

import pytest
from handmade import SMALL

from harness.errors import SuiteError
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


def test_later_override_wins(write):
    assert load(write(SMALL), ("train.epochs=3", "train.epochs=4")).trials[0].train.epochs == 4


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.epoch=3", "train.epoch: unknown key 'epoch'; did you mean 'epochs'?"),
        ("trian.epochs=3", "trian: unknown key 'trian'; did you mean 'train'?"),
        ("tables=3", "tables: unknown key 'tables'; did you mean 'table'?"),
        ("train.epochs=two", 'train.epochs: expected a valid number, got "two"'),
        ("train.epochs=-0.5", "train.epochs: expected greater than or equal to 0, got -0.5"),
        ("train.epochs='2'", 'train.epochs: expected a valid number, got "2"'),
        ("train.lr=.nan", "train.lr: expected a finite number, got NaN"),
        ("train.batch_size=201", "train.batch_size: 201 rows need 402 training tokens, the corpus has 400"),
        ("table.margin=0.11", "table.margin: expected less than or equal to 0.1, got 0.11"),
        ('table.notes=["a\\nb"]', 'table.notes: expected one line of printable text, got "a\\nb"'),
        ("table.notes=['']", 'table.notes: expected one line of printable text, got ""'),
        ("table.baseline=sofmax", "table.baseline: 'sofmax' is not a head of this suite; did you mean 'softmax'?"),
        (
            "heads.1.mos.num_mixtures=0",
            "heads.1.mos.num_mixtures: num_mixtures must be at least 1, got 0 "
            "(on lstm(d_model=8, num_layers=1, dropout=0.1))",
        ),
        (
            "heads.1.mos.num_mixture=3",
            "heads.1.mos.num_mixture: unknown parameter 'num_mixture' of head 'mos'; did you mean 'num_mixtures'?",
        ),
        ("heads.5=mos", "heads has no key '5'"),
        ("heads.0.softmax.bias=false", "heads.0 has no key 'softmax'"),
        ("train.0=1", "train has no key '0'"),
        ("0=1", "the suite has no key '0'"),
        ("train.\u00b2=1", "train.\u00b2: unknown key '\u00b2'"),
        ("train.epochs", "expected key=value"),
        ("=3", "expected key=value"),
    ],
)
def test_wrong_override_is_reported_as_the_command_line_said_it(override, message, write):
    with pytest.raises(SuiteError) as caught:
        load(write(SMALL), (override,))
    assert caught.value.problems == [f"--set {override}: {message}"]


@pytest.mark.parametrize(
    "overrides",
    [
        ("train.epochs=2",),
        ("train.epochs=5", "train.epochs=2"),
        ("resources.cpus=2",),
        ("train.cuda_graph=on",),
        ("train.cuda_graph=off",),
    ],
)
def test_an_override_that_changes_no_trial_is_no_change(write, overrides):
    path = write(SMALL)
    assert load(path).trials[0].train.epochs == 2
    assert load(path, overrides).overrides == ()
    assert [trial.id for trial in load(path, overrides).trials] == [trial.id for trial in load(path).trials]
