"""What a suite leaves out: its name, and the baseline of its table."""

import pytest

from harness.errors import SuiteError
from harness.plan import load

MINIMAL = """\
corpora: [markov: {vocab_size: 12, num_tokens: 4000, branching: 3}]
backbones: [lstm: {d_model: 8, num_layers: 1}]
heads: [softmax, mos: {num_mixtures: 2}]
seeds: [1, 2]
train: {lr: 1, epochs: 1}
"""


HEADS = "[softmax, mos: {num_mixtures: 2}]"


def test_five_lines_are_a_suite(write):
    suite = load(write(MINIMAL))
    assert (suite.name, suite.version, len(suite.trials)) == ("suite", 1, 4)
    train = suite.trials[0].train
    assert (train.optimizer, train.batch_size, train.seq_len, train.clip) == ("sgd", 20, 35, None)
    assert suite.table.baseline == "softmax"


def test_the_name_is_that_of_the_file(tmp_path):
    path = tmp_path / "mine_2.yaml"
    for written, name in (("", "mine_2"), ("name: null\n", "mine_2"), ("name: other\n", "other")):
        path.write_text(written + MINIMAL)
        assert load(path).name == name
    assert load(path, ("name=third",)).name == "third"


@pytest.mark.parametrize("name", ["My Suite", "a.b", "leaderboard"])
def test_a_file_name_that_cannot_be_a_name_is_said(tmp_path, name):
    path = tmp_path / f"{name}.yaml"
    path.write_text(MINIMAL.replace("lr: 1", "lr: -1"))
    with pytest.raises(SuiteError) as caught:
        load(path)
    first, second = caught.value.problems  # together with the others
    assert first.startswith(f"{path}:1:1: ")
    assert name in first
    assert "greater than 0" in second


@pytest.mark.parametrize(
    ("heads", "baseline"),
    [
        *[("[mos, softmax]", "softmax"), ("[softmax: {projection: true}, mos]", None)],
        ("[softmax: {projection: [true, false]}]", "softmax(projection=False)"),
        ("[softmax: {tie_weights: true}, mos]", "softmax(tie_weights=True)"),
        ("[softmax: {tie_weights: [true, false]}, mos]", None),
        *[("[softmax, softmax: {tie_weights: true}, mos]", "softmax"), ("[softmax]", None)],
    ],
)
def test_the_baseline_is_the_plain_softmax_where_there_is_one(write, heads, baseline):
    assert load(write(MINIMAL.replace(HEADS, heads))).table.baseline == baseline


def test_a_suite_can_name_another_baseline_or_none_and_other_settings_leave_the_default(write):
    for table, baseline in (("baseline: null", None), ("baseline: mos", "mos"), ("shape: heads", "softmax")):
        assert load(write(f"{MINIMAL}table: {{{table}}}\n")).table.baseline == baseline
