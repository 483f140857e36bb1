"""Corpora and weights are made ready before trials start, and are what the plan was made with where trials run."""

import pytest
from disturbed import suite_text
from torch import nn
from trained import loaded

from harness.errors import CorpusError, WeightsError
from harness.registry import BACKBONES
from harness.trial.setup import fetch_sources, load_planned


class Stored(nn.Module):
    """A backbone whose weights come from files, elsewhere."""

    said = "abc"
    fault: Exception | None = None
    fetched: list[int]

    def __init__(self, vocab_size, *, d_model: int = 4):
        super().__init__()
        self.layer_dims, self.embedding = (d_model,), nn.Embedding(vocab_size, d_model)

    @classmethod
    def content(cls, *, d_model: int) -> str | None:
        if isinstance(cls.said, Exception):
            raise cls.said
        return cls.said

    @classmethod
    def fetch(cls, *, d_model: int) -> None:
        if cls.fault is not None:
            raise cls.fault
        cls.fetched.append(d_model)


@pytest.fixture
def planned(tmp_path, monkeypatch):
    BACKBONES.names()  # discover before the table is changed
    monkeypatch.setitem(BACKBONES._classes, "stored", Stored)
    monkeypatch.setattr(Stored, "fetched", [], raising=False)
    return loaded(tmp_path, suite_text("softmax", backbones="backbones: [{stored: {d_model: [4, 8]}}, lstm]"))


@pytest.mark.parametrize("fault", [OSError("no network, says the hub"), ValueError("another content")])
def test_weights_that_cannot_be_had_are_a_sentence(planned, tmp_path, monkeypatch, fault):
    monkeypatch.setattr(Stored, "fault", fault)
    for use in (
        lambda: fetch_sources(planned.trials, tmp_path),
        lambda: load_planned(planned.trials[0], tmp_path, planned.contents),
    ):
        with pytest.raises(WeightsError, match=str(fault)):
            use()


def test_a_worker_finds_what_was_planned(planned, tmp_path):
    for spec in planned.trials:
        corpus = load_planned(spec, tmp_path, planned.contents)
        assert (corpus.vocab_size, len(corpus.train)) == (12, 400)


def test_a_worker_refuses_weights_that_are_no_longer_what_was_planned(planned, tmp_path, monkeypatch):
    monkeypatch.setattr(Stored, "said", "abd")
    with pytest.raises(CorpusError, match=r"stored\(d_model=4\) has changed since the trials were planned; run the"):
        load_planned(planned.trials[0], tmp_path, planned.contents)
    assert load_planned(planned.trials[0], tmp_path, {}).vocab_size == 12  # nothing was planned: nothing is compared
    monkeypatch.setattr(Stored, "said", ValueError("the folder is gone"))
    with pytest.raises(WeightsError, match="the folder is gone"):
        load_planned(planned.trials[0], tmp_path, planned.contents)
