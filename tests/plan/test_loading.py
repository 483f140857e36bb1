"""A suite file to its trials: every mistake at once and at its place, grids, paths."""

from itertools import product
from pathlib import Path

import pytest
from handmade import SMALL, changed, suite_text
from texts import lines

from harness.plan import load
from harness.registry import HEADS


def test_head_with_an_annotation_nobody_understands_is_a_sentence(problems, layered, monkeypatch):
    class Odd(HEADS.get("layered")):
        def __init__(self, dims, embedding, *, size=1):
            super().__init__(dims, embedding)

    Odd.__init__.__annotations__["size"] = "Nowhere"
    monkeypatch.setitem(HEADS._classes, "odd", Odd)
    (problem,) = problems(changed(("- softmax", "- odd: {size: 2}"), ("baseline: softmax", "baseline: odd")))
    assert problem.startswith("8:")


def test_grid_is_expanded_in_the_order_of_the_file(write):
    text = changed(
        ("num_tokens: 400", "num_tokens: [500, 400]"),
        ("d_model: 8", "d_model: [8, 6]"),
        ("mos: {num_mixtures: 2}", "mos: {dropout: [0.1, 0.2], num_mixtures: [3, 2]}"),
        ("[1, 2]", "[9, 4]"),
    )
    # corpora x backbones x heads x seeds; within a head the axes in the order of the constructor, values in the file's.
    points = [(3, 0.1), (3, 0.2), (2, 0.1), (2, 0.2)]
    heads = ["softmax"] + [f"mos(num_mixtures={k}, dropout={rate})" for k, rate in points]
    found = [
        (t.corpus.params["num_tokens"], t.backbone.params["d_model"], str(t.head), t.seed)
        for t in load(write(text)).trials
    ]
    assert found == list(product((500, 400), (8, 6), heads, (9, 4)))


def test_parameter_counts_are_those_of_the_formula(write):
    suite = load(write(SMALL))
    # V = 12, D = 8. Embedding V D = 96. LSTM: 4 gates of D (D + D) + 2 D: 4 * (128 + 16) = 576. Head: V D + V = 108.
    # MoS, K = 2: latent K D D + K D = 144, prior K D = 16, output 108: 268.
    assert [suite.candidate_of(trial).params for trial in suite.trials] == [(780, 108)] * 2 + [(940, 268)] * 2


def test_text_path_is_relative_to_the_suite_file(write, problems, tmp_path, monkeypatch):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "own.txt").write_text(lines(20, seed=1))
    monkeypatch.chdir("/")
    text = changed(("markov: {vocab_size: 12, num_tokens: 400, branching: 3}", "text: {path: texts/own.txt}"))
    (trial, *_) = load(write(text)).trials
    assert Path(trial.corpus.params["path"]) == (tmp_path / "texts" / "own.txt").resolve()
    # the text is there, for a path that begins at the working folder
    monkeypatch.chdir(tmp_path / "texts")
    folder = tmp_path.resolve()
    assert problems(text.replace("texts/own", "own")) == [
        f"4:18: corpora.0.text.path: 'own.txt' does not exist: paths begin at the suite's folder, {folder}; "
        "did you mean 'texts/own.txt'?"
    ]


@pytest.mark.needs("pretrained")
def test_what_is_missing_is_named_and_not_every_head_that_needs_it(problems):
    """The first words of a suite whose text and model are not here yet."""
    body = "hf: {model: ../models/mine, layers: [-2, -1]}"
    text = changed(
        ("markov: {vocab_size: 12, num_tokens: 400, branching: 3}", "text: {path: texts/own.txt}"),
        ("lstm: {d_model: 8, num_layers: 1, dropout: 0.1}", body),
        ("- softmax", "- softmax: {start: pretrained}"),
        ("mos: {num_mixtures: 2}", "mfs: {num_input_layers: 2, num_partitions: 4}"),
        ("baseline: softmax", "baseline: null"),
    )
    no_text, no_model = problems(text)
    assert no_text.startswith("4:5: corpora.0: ")
    assert no_model.startswith("6:17: backbones.0.hf.model: ")


def test_loading_builds_no_tensor_of_the_models(write):
    # 10**6 words by 10**5 units would be 400 GB.
    suite = load(write(changed(("vocab_size: 12", "vocab_size: 1000000"), ("d_model: 8", "d_model: 100000"))))
    assert suite.candidate_of(suite.trials[0]).params[0] > 10**11


@pytest.mark.system
def test_a_suite_of_too_many_trials_is_refused_before_they_are_made(problems):
    assert problems(changed(("[1, 2]", str(list(range(5_001)))))) == ["1:1: expands to more than 10000 trials"]
    grid = f"num_mixtures: {list(range(1, 10_002))}"
    assert problems(changed(("num_mixtures: 2", grid))) == ["9:5: heads.1: a grid of more than 10000 points"]


# values that the command line changes


def test_overrides_are_applied_and_recorded(write):
    overrides = ("train.epochs=3", "seeds=[7]", "heads.1.mos.num_mixtures=[4, 5]", "train.clip=0.5", "train.lr=1e-3")
    suite = load(write(SMALL), overrides)
    heads = ("softmax", "mos(num_mixtures=4)", "mos(num_mixtures=5)")
    assert [str(trial) for trial in suite.trials] == [f"{head} lstm markov seed=7" for head in heads]
    train = suite.trials[0].train
    assert (train.epochs, train.clip, train.lr) == (3, 0.5, 0.001)
    before = ["2", "2", "2", None, "0.01"]
    assert suite.overrides == tuple((*text.split("="), old) for text, old in zip(overrides, before, strict=True))


def test_an_override_with_plus_appends_to_a_list(write):
    path, added = write(SMALL), ("heads+=mfs", "heads+={mos: {num_mixtures: 7}}")
    before, after = load(path), load(path, added)
    assert [str(row.head.spec) for row in after.rows] == [
        *(str(row.head.spec) for row in before.rows),
        "mfs",
        "mos(num_mixtures=7)",
    ]
    assert after.overrides == (("heads+", "mfs", None), ("heads+", "{mos: {num_mixtures: 7}}", None))


@pytest.mark.parametrize("cuda_graph", ["on", "off"])
def test_an_override_that_changes_no_trial_is_no_change(write, cuda_graph):
    path = write(SMALL)
    assert load(path).trials[0].train.epochs == 2
    loaded = load(path, ("train.epochs=5", "train.epochs=2", "resources.cpus=2", f"train.cuda_graph={cuda_graph}"))
    assert loaded.overrides == load(path, ("train.epochs=2",)).overrides == ()
    assert [trial.id for trial in loaded.trials] == [trial.id for trial in load(path).trials]


@pytest.mark.parametrize(("given", "seeds"), {"3": [1, 2, 3], "1": [1], "[0, 7]": [0, 7]}.items())
def test_a_number_of_seeds_means_the_seeds_from_one_on(tmp_path, given, seeds):
    place = tmp_path / "suite.yaml"
    place.write_text(suite_text(seeds=given))
    assert sorted({trial.seed for trial in load(place).trials}) == seeds
    assert load(place, (f"seeds={len(seeds)}",)).overrides == (() if given != "[0, 7]" else (("seeds", "2", "[0,7]"),))
