"""A head that learns the bytes of tokens has those of the corpus: in training, and when a trial is loaded."""

from pathlib import Path

import torch
from disturbed import MARKOV, TRAIN, suite_text
from trained import loaded, ran

from harness.corpora.vocabulary import UNK
from harness.registry import CORPORA
from harness.training.checkpoint import BEST
from harness.trial.trained import rebuilt

HEAD, NOVEL = "{byte_loss: {num_bytes: 3}}", "{embedded: {characters: 1500}}"


def trial(folder, corpus):
    return loaded(folder, suite_text(HEAD, corpus=corpus, train=TRAIN))


def test_a_loaded_trial_has_the_symbols_of_the_words(tmp_path):
    (spec,) = trial(tmp_path, NOVEL).trials
    record = ran(spec, tmp_path / "runs")
    assert record.status == "ok", record.message
    corpus = CORPORA.get("embedded")(characters=1500).load(Path())
    head = rebuilt(record, tmp_path / "runs" / spec.id / BEST, corpus, torch.device("cpu")).model.head
    expected = []
    for word in corpus.symbols:
        symbols = [] if word in (UNK, "<eos>") else [*word.encode(), 256]
        expected.append((symbols + [-1] * 3)[:3])
    assert head.symbols_Vn.tolist() == expected


def test_tokens_without_text_are_one_sentence(tmp_path):
    (spec,) = trial(tmp_path, MARKOV).trials
    record = ran(spec, tmp_path / "runs")
    assert record.status == "error"
    assert record.message == (
        "RuntimeError: byte_loss needs HeadDims.token_bytes, the text of each token: take a corpus whose codec has the "
        "method token_bytes"
    )
