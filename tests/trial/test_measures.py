"""Which measures a record has beside what all have: measure.* of a suite."""

import math

import pytest
import torch
from disturbed import CORPUS, suite_text
from small import V, tokens
from trained import loaded, outcome, ran

from harness.corpora.corpus import Corpus, CorpusFacts, TextSize
from harness.plan.suite_file import DynamicSpec, MeasureSpec
from harness.registry import CORPORA

TOKENS = tokens(200)
TRAIN = "train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}"
NEW = {"test_calibration_error", "test_entropy", "start_valid_ppl", "inference_batch"} | {
    f"inference_ms_per_batch{more}" for more in ("", "_iqr")
}
ALL = MeasureSpec(start=True, inference_batch=2, calibration=True)
DYNAMIC = MeasureSpec(dynamic=DynamicSpec(batch_size=4))


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
        text = suite_text("softmax", train=TRAIN).replace(CORPUS, f"corpora: [{corpus}]")
        spec = loaded(tmp_path, text, *overrides).trials[0]
        return ran(spec, tmp_path / str(measure), measure=measure or MeasureSpec())

    return execute


def test_measures_are_in_the_record_where_they_are_asked_for_and_change_no_result(executed):
    plain, asked = executed(), executed(ALL)
    assert outcome(plain)[:2] == outcome(asked)[:2]
    assert plain.id == asked.id
    assert plain.metrics["test_ppl"] == asked.metrics["test_ppl"]
    assert not NEW & set(plain.metrics)
    assert set(asked.metrics) >= NEW
    assert asked.metrics["inference_batch"] == 2
    assert asked.metrics["inference_ms_per_batch"] > 0


def test_dynamic_evaluation_has_columns_of_its_own_and_changes_no_other_number(executed):
    plain, asked = executed(), executed(DYNAMIC)
    assert outcome(plain)[:2] == outcome(asked)[:2]
    assert [asked.metrics[name] for name in plain.metrics if "ppl" in name] == [
        value for name, value in plain.metrics.items() if "ppl" in name
    ]
    assert set(asked.metrics) - set(plain.metrics) == {"dynamic_valid_ppl", "dynamic_test_ppl"}
    assert asked.metrics["dynamic_test_ppl"] != pytest.approx(asked.metrics["test_ppl"], rel=1e-4)
    assert {asked.weights_sha256} == {plain.weights_sha256}


def test_a_text_is_counted_by_words_bytes_and_characters(executed):
    metrics = executed().metrics
    nats = torch.tensor(metrics["test_ppl"], dtype=torch.float64).log() * 199
    assert metrics["scored_test_tokens"] == 199
    assert metrics["test_ppl_word"] == pytest.approx((nats / 100).exp().item())
    assert metrics["test_ppl_byte"] == pytest.approx((nats / 600).exp().item())
    assert metrics["test_bits_per_character"] == pytest.approx((nats / 500).item() * 1.4426950408889634)
    assert metrics["test_bits_per_byte"] == pytest.approx(math.log2(metrics["test_ppl_byte"]))


def test_a_corpus_that_is_only_evaluated_on_has_no_unigram(executed):
    record = executed(ALL, "train.epochs=0", corpus="{written: {untrained: true}}")
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
