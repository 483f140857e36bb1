"""The names of rows: what distinguishes them, in the words of the head, or the label that the suite gives."""

import pytest
from handmade import changed

from harness.errors import ExecutionError
from harness.plan import load, select
from harness.plan.loading import labels
from harness.plan.names import names_of
from harness.plan.specs import ComponentSpec
from harness.registry import HEADS


@pytest.fixture
def suite_of(write):
    """A function: the heads of a suite in YAML, further changes -> the suite."""

    def make(heads: str, *changes):
        return load(write(changed(("  - softmax\n  - mos: {num_mixtures: 2}\n", heads), *changes)))

    return make


@pytest.fixture
def named(suite_of):
    """A function: the same -> the names of the heads, in their order."""

    def of(heads, *changes):
        rows = suite_of(heads, ("{baseline: softmax}", "{}"), *changes).rows
        return list(dict.fromkeys(row.head.name for row in rows))

    return of


@pytest.mark.parametrize(
    ("heads", "names"),
    [
        (
            "  - softmax: {projection: true, d_embed: [null, 4], init_range: 0.1}\n  - softmax\n",
            ["affine softmax, init_range 0.1", "affine softmax, rank 4, init_range 0.1", "softmax"],
        ),
        ("  - mos: {num_mixtures: 2, dropout: [0.0, 0.2]}\n", ["MoS 2, dropout 0", "MoS 2, dropout 0.2"]),
        ("  - mos: {num_mixtures: 2, bias: [true, false]}\n", ["MoS 2", "MoS 2, no bias"]),
        ("  - softmax\n  - softmax: {softcap: 30.0}\n", ["softmax", "softmax, softcap 30"]),
        ('  - softmax\n  - softmax: {bias: false, label: "no bias <b>"}\n', ["softmax", "no bias <b>"]),
        ('  - mos: {num_mixtures: [2, 3], label: "ours, K = {num_mixtures}"}\n', ["ours, K = 2", "ours, K = 3"]),
    ],
)
def test_a_name_says_what_distinguishes_a_row(named, heads, names):
    assert named(heads) == names


def test_two_that_would_have_one_name_are_written_in_full():
    plain, affine = (ComponentSpec(name="softmax", params=params) for params in ({"bias": False}, {"projection": True}))
    assert names_of([plain, affine], HEADS, labels={str(plain): "affine softmax"}) == {
        "softmax(bias=False)": "softmax(bias=False)",
        "softmax(projection=True)": "softmax(projection=True)",
    }


def test_a_label_that_fails_and_one_in_a_docstring_are_a_sentence(monkeypatch):
    softmax, head = HEADS.get("softmax"), ComponentSpec(name="softmax")
    monkeypatch.setattr(softmax, "label", classmethod(lambda cls, p: p.k))
    with pytest.raises(ExecutionError, match="the label of 'softmax' raised AttributeError: there is no parameter 'k'"):
        names_of([head], HEADS)
    monkeypatch.delattr(softmax, "label")
    monkeypatch.setattr(softmax, "__doc__", "A head.\n\nLabel: mine")
    with pytest.raises(ExecutionError, match=r"'softmax' has 'Label:' in its docstring, .* removed: .*label\("):
        names_of([head], HEADS)


def test_what_is_tuned_is_in_no_name(named):
    tune = ("train:", "tune: {space: {head.num_mixtures: [2, 3]}}\ntrain:")
    assert named("  - mos\n", tune) == ["MoS"]


def test_a_label_changes_no_trial(suite_of):
    plain = suite_of("  - softmax\n  - mos: {num_mixtures: [2, 3]}\n")
    labelled = suite_of("  - softmax: {label: plain}\n  - mos: {num_mixtures: [2, 3], label: 'M {num_mixtures}'}\n")
    assert [trial.id for trial in plain.possible_trials] == [trial.id for trial in labelled.possible_trials]
    assert [labelled.row_of(trial).head.name for trial in labelled.trials[::2]] == ["plain", "M 2", "M 3"]


def test_backbones_and_corpora_have_names_and_labels_too(suite_of):
    of_lstm = ("d_model: 8", "d_model: [8, 6], label: 'LSTM, {d_model} wide'")
    suite = suite_of("  - softmax\n", of_lstm, ("branching: 3", "branching: 3, label: a chain"))
    assert list(dict.fromkeys(row.backbone.name for row in suite.rows)) == ["LSTM, 8 wide", "LSTM, 6 wide"]
    assert list(dict.fromkeys(row.corpus.name for row in suite.rows)) == ["a chain"]


@pytest.mark.parametrize("baseline", ["affine softmax", "plain"])
def test_a_baseline_is_named_as_in_the_table_or_as_the_plan_prints_it(suite_of, baseline):
    heads = "  - softmax: {label: plain}\n  - softmax: {projection: true}\n"
    suite = suite_of(heads, ("baseline: softmax", f"baseline: {baseline}"))
    assert suite.table.baseline == ("softmax" if baseline == "plain" else "softmax(projection=True)")


@pytest.mark.parametrize(
    ("only", "heads"),
    [
        ("head=affine softmax, rank 4,seed=1", ["affine softmax, rank 4"]),
        ("head=softmax,seed=1", ["softmax", "affine softmax", "affine softmax, rank 4"]),  # the name of the class
    ],
)
def test_a_condition_names_a_row_as_in_the_table(suite_of, only, heads):
    text = "  - softmax\n  - softmax: {projection: true, d_embed: [null, 4]}\n  - mos: {num_mixtures: 2}\n"
    suite = suite_of(text)
    chosen = select(suite.trials, (only,), suite)
    assert list(dict.fromkeys(suite.row_of(trial).head.name for trial in chosen)) == heads
    assert {trial.seed for trial in chosen} == {1}


def test_views_that_read_a_suite_again_take_no_refused_label(write):
    suite = changed(("- softmax", "- softmax: {softcap: 0.05, label: softmax}"), ("2}\n", "2, label: ours}\n"))
    assert labels(write(suite))["head"] == {"mos(num_mixtures=2)": "ours"}
