"""Which measures a record has beside what all have: measure.* of a suite."""

from functools import partial

import handmade
import pytest
import torch

from harness import plan
from harness.corpora.corpus import Corpus, CorpusFacts, TextSize
from harness.plan.suite_file import MeasureSpec
from harness.registry import CORPORA
from harness.trial.run import run

V = 12
TOKENS = torch.randint(V, (200,), generator=torch.Generator().manual_seed(0))

SUITE = """\
name: tiny
version: 1
corpora: [CORPUS]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax]
train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}
seeds: [1]
"""


class Text:
    """200 random tokens a split, of which the test split stands for a text; nothing to train on where asked for."""

    def __init__(self, *, untrained: bool = False):
        self.train = TOKENS[: 0 if untrained else 200]

    def facts(self):
        return CorpusFacts(vocab_size=V, num_tokens=None, content="0" * 64, counting="made up")

    def fetch(self, data):
        pass

    def load(self, data):
        size = TextSize(words=100, characters=500, bytes=600)
        return Corpus(vocab_size=V, train=self.train.int(), valid=TOKENS.int(), test=TOKENS.int(), test_size=size)


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """A function: measures, changes of the suite -> the record of its trial on Text."""
    CORPORA.names()
    monkeypatch.setitem(CORPORA._classes, "written", Text)

    def execute(measure=None, *overrides, corpus="written"):
        place = tmp_path / "tiny.yaml"
        place.write_text(SUITE.replace("CORPUS", corpus))
        setting = partial(
            handmade.task,
            runs=tmp_path / "runs",
            measure=measure or MeasureSpec(),
        )
        return run(setting(spec=plan.load(place, overrides).trials[0]))

    return execute


NEW = {"test_calibration_error", "test_entropy"} | {
    "start_valid_ppl",
    "inference_ms_per_batch",
    "inference_ms_per_batch_iqr",
    "inference_batch",
}


def test_measures_are_in_the_record_where_they_are_asked_for(executed):
    plain = executed(None, "seeds=[2]")
    asked = executed(MeasureSpec(start=True, inference_batch=2, calibration=True))
    assert (plain.status, asked.status) == ("ok", "ok"), (plain.message, asked.message)
    assert not NEW & set(plain.metrics)
    assert set(asked.metrics) >= NEW
    assert asked.metrics["inference_batch"] == 2
    assert asked.metrics["inference_ms_per_batch"] > 0


def test_measures_change_no_result(executed, tmp_path):
    plain = executed()
    (tmp_path / "runs").rename(tmp_path / "plain")
    asked = executed(MeasureSpec(start=True, inference_batch=2, calibration=True))
    assert plain.id == asked.id
    assert plain.weights_sha256 == asked.weights_sha256
    assert plain.metrics["test_ppl"] == asked.metrics["test_ppl"]


def test_a_text_is_counted_by_words_bytes_and_characters(executed):
    metrics = executed().metrics
    nats = torch.tensor(metrics["test_ppl"], dtype=torch.float64).log() * 199
    assert metrics["scored_test_tokens"] == 199
    assert metrics["test_ppl_word"] == pytest.approx((nats / 100).exp().item())
    assert metrics["test_ppl_byte"] == pytest.approx((nats / 600).exp().item())
    assert metrics["test_bits_per_character"] == pytest.approx((nats / 500).item() * 1.4426950408889634)


def test_a_corpus_that_is_only_evaluated_on_has_no_unigram(executed):
    corpus = "{written: {untrained: true}}"
    record = executed(MeasureSpec(start=True, inference_batch=2), "train.epochs=0", corpus=corpus)
    assert record.status == "ok", record.message
    assert "unigram_test_ppl" not in record.metrics
    assert record.metrics["start_valid_ppl"] == record.metrics["valid_ppl"]
    assert record.metrics["best_epoch"] == 0


def test_a_stride_with_carried_state_is_an_error_before_anything_is_trained(executed):
    record = executed(None, "train.eval_stride=3")
    assert record.status == "error"
    assert record.message.startswith("ExecutionError: train.eval_stride is for backbones without state")
    assert record.curve == ()
    assert "train_ms_per_batch" not in record.metrics
