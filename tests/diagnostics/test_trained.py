"""Finished trials are found by their ids; what is lacking is one sentence."""

import pytest
import torch

from harness.errors import Damaged, ExecutionError, RecordError
from harness.model import build
from harness.records import store
from harness.training import checkpoint
from harness.trial.trained import find, load

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["softmax on lstm", "mixtape on transformer_encoder", "mfs on lstm"])
def test_the_model_has_the_weights_of_the_trial(finish, tmp_path, name):
    spec = finish(seed=3)[name]
    trained = load(tmp_path / "results", spec.id[:4], tmp_path, CPU)
    expected = build(spec.backbone, spec.head, vocab_size=12, seed=3, token_counts=torch.full((12,), 5)).state_dict()
    found = trained.model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert not trained.model.training
    assert trained.ids("bad").tolist() == [[1, 0, 3]]


def test_of_two_suites_the_one_with_weights_counts(finish, tmp_path):
    trials = finish("first", status="oom")
    finish("second")
    record, weights = find(tmp_path / "results", trials["softmax on lstm"].id)
    assert (record.suite, weights.is_file()) == ("second", True)


@pytest.mark.parametrize("status", ["ok", "invalid"])
def test_of_two_suites_with_different_results_none_is_chosen(status, finish, tmp_path):
    spec = finish("first")["softmax on lstm"]
    finish("second")
    runs = tmp_path / "results" / "runs"
    record = store.load(runs / "second", spec.id)
    better = record.model_copy(update={"status": status, "metrics": {**record.metrics, "test_ppl": 1.5}})
    store.save(better, runs / "second")
    with pytest.raises(ExecutionError) as caught:
        find(tmp_path / "results", spec.id)
    folders = " and ".join(str(runs / suite / spec.id) for suite in ("first", "second"))
    assert str(caught.value) == f"trial {spec.id} has different results in {folders}: remove one of them"


def test_a_prefix_of_several_is_a_sentence_that_names_some(tmp_path):
    for number in range(7):
        place = tmp_path / "results" / "runs" / f"suite{number % 2}" / f"ab{number}" / store.FILE_NAME
        place.parent.mkdir(parents=True)
        place.touch()
    with pytest.raises(ExecutionError, match="ab is the beginning of ab0, ab1, ab2, ab3, ab4 and 2 more; give more"):
        find(tmp_path / "results", "ab")


def test_a_trial_without_weights_is_a_sentence(finish, tmp_path):
    spec = finish(status="diverged")["softmax on lstm"]
    with pytest.raises(ExecutionError, match=f"{spec.id} ended as 'diverged': it has no weights"):
        find(tmp_path / "results", spec.id)
    finish()
    weights = store.folder(store.runs_folder(tmp_path / "results", "letters"), spec.id) / checkpoint.BEST
    weights.unlink()
    with pytest.raises(
        ExecutionError,
        match=f"train it again: harness run letters --force --only id={spec.id}",
    ):
        find(tmp_path / "results", spec.id)


def test_weights_a_record_and_a_corpus_that_are_others_are_refused(finish, tmp_path, letters, monkeypatch):
    trials = finish()
    spec, other = trials["softmax on lstm"], trials["mfs on lstm"]
    runs = store.runs_folder(tmp_path / "results", "letters")
    with monkeypatch.context() as patch:
        patch.setattr(letters, "content", "1" * 64)
        with pytest.raises(ExecutionError, match="have changed since"):
            load(tmp_path / "results", spec.id, tmp_path, CPU)
    with monkeypatch.context() as patch:
        patch.setattr(letters, "codec", None)
        with pytest.raises(ExecutionError, match="do not stand for text"):
            load(tmp_path / "results", spec.id, tmp_path, CPU)
    one, two = (store.folder(runs, each.id) / checkpoint.BEST for each in (spec, other))
    one.write_bytes(two.read_bytes())
    with pytest.raises(Damaged, match="not the weights that the record names"):
        load(tmp_path / "results", spec.id, tmp_path, CPU)
    place = store.folder(runs, spec.id) / store.FILE_NAME
    place.write_text(place.read_text().replace('"ok"', '"oom"'))
    with pytest.raises(RecordError, match="checksum"):
        find(tmp_path / "results", spec.id)
