"""Trials of `ngrams` from spec to record: their numbers, and what they have in common with other trials."""

import math

import pytest
from ngram_oracle import Oracle, cached
from trained import loaded, ran

from harness.corpora.local_text import Embedded
from harness.machine.stop_request import Interrupted
from harness.records import sidecars
from harness.trial import stages
from harness.trial.stages import load_planned

SUITE = """\
name: counted
version: 1
corpora: [{text: {path: PLACE, boundary: BOUNDARY}}]
ngrams: NGRAMS
"""


def trial(tmp_path, ngrams, boundary="eos", text=None):
    novel = Embedded().load(tmp_path)
    lines = " ".join(novel.symbols[token] for token in novel.train[:9000]).split(" <eos> ")
    place = tmp_path / "novel.txt"
    place.write_text(text or "\n".join(lines), encoding="utf-8")
    suite = SUITE.replace("PLACE", str(place)).replace("NGRAMS", ngrams).replace("BOUNDARY", boundary)
    return loaded(tmp_path, suite).trials[0]


@pytest.mark.parametrize("boundary", ["eos", "sos_eos"])
def test_the_record_has_the_perplexity_of_the_loops(tmp_path, boundary):
    spec = trial(tmp_path, "[{order: 3, cache: true}]", boundary)
    record = ran(spec, tmp_path)
    assert (record.status, record.message) == ("ok", "")
    corpus = load_planned(spec, tmp_path, None)
    train, test = corpus.train.tolist(), corpus.test.tolist()
    oracle = Oracle(train, 3, range(corpus.vocab_size), corpus.symbols.index("<eos>"))
    window, weight = int(record.metrics["cache_window"]), record.metrics["cache_weight"]
    nll = [
        -math.log((1 - weight) * oracle.probability(word, test[:i]) + weight * cached(word, test[:i], window))
        for i, word in enumerate(test)
        if i
    ]
    assert record.metrics["test_ppl"] == pytest.approx(math.exp(sum(nll) / len(nll)), rel=1e-10)
    if boundary == "sos_eos":
        counted = sum(word != corpus.symbols.index("<sos>") for word in test[1:])
        assert record.metrics["test_ppl_standard"] == pytest.approx(math.exp(sum(nll) / counted), rel=1e-10)
    scores = sidecars.TOKEN_NLL.load(tmp_path, record)
    assert scores.nll[1:] == pytest.approx(nll, rel=1e-6)


def test_a_trial_that_is_resumed_ends_with_the_same_record(tmp_path, monkeypatch):
    spec = trial(tmp_path, "[{order: 3, cache: true}]")
    whole = ran(spec, tmp_path / "whole")

    def killed(trial, built):
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(stages, "evaluate", killed)
        with pytest.raises(KeyboardInterrupt):
            ran(spec, tmp_path)
    assert list((tmp_path / spec.id).glob("checkpoint-*.pt"))
    resumed = ran(spec, tmp_path)
    assert resumed.environment.sessions == 2
    assert (resumed.metrics["test_ppl"], resumed.weights_sha256) == (whole.metrics["test_ppl"], whole.weights_sha256)


def test_a_text_that_is_too_small_gives_a_record_with_the_reason(tmp_path):
    record = ran(trial(tmp_path, "[3]", text="a b c\n" * 16 + "b c a\n" * 2 + "c b a\n" * 2), tmp_path)
    assert record.status == "error"
    assert "the discounts of order 3 cannot be estimated from this training text" in record.message
