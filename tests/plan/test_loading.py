"""A suite file to its trials: every mistake at once and at its place, grids, paths."""

from pathlib import Path

import pytest
from handmade import changed
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
