"""Inference time: which batches are timed, and how; and which measures a record has beside what all have."""

from functools import partial
from itertools import cycle, islice

import handmade
import pytest
import torch

from harness import plan
from harness.corpora.corpus import Corpus, CorpusFacts, TextSize
from harness.model import build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.plan.suite_file import MeasureSpec
from harness.registry import CORPORA
from harness.trial import inference
from harness.trial.inference import inference_times
from harness.trial.run import run

V = 12
TOKENS = torch.randint(V, (200,), generator=torch.Generator().manual_seed(0))
LSTM = ComponentSpec(name="lstm", params={"d_model": 8, "num_layers": 1, "dropout": 0.5})


def evaluation(**changes):
    settings = {"optimizer": "sgd", "lr": 0.5, "epochs": 1, "batch_size": 4, "seq_len": 7}
    return TrainSpec(**{**settings, **changes}).evaluation


@pytest.fixture
def timed(monkeypatch):
    """A function: tokens, settings, batch -> (metrics, what the model was given each time), by a clock that a call of
    the model moves on by 1, 2, 3 ... ms and waiting for the device by 0.5 ms.
    """
    now, calls = [0.0], []

    def wait(device):
        now[0] += 0.0005

    def given(module, arguments):
        assert not module.training
        assert not torch.is_grad_enabled()
        calls.append(arguments)
        now[0] += len(calls) / 1e3

    monkeypatch.setattr(inference, "_wait", wait)
    monkeypatch.setattr(inference.time, "perf_counter", lambda: now[0])

    def measure(tokens, settings, batch):
        model, beats = build(LSTM, ComponentSpec(name="softmax"), vocab_size=V, seed=1), []
        model.register_forward_pre_hook(given)
        found = inference_times(model, tokens, settings, batch=batch, beat=lambda: beats.append(1))
        assert len(beats) == len(calls)
        return found, calls

    return measure


def test_twenty_batches_are_timed_after_five_with_the_device_waited_for(timed):
    found, calls = timed(TOKENS, evaluation(), 3)
    # 66 tokens a column: 9 full segments of 7, and one of 2 that is left out; 25 calls go through them again and again
    table = TOKENS[:198].view(3, 66)
    expected = list(islice(cycle([table[:, at : at + 7] for at in range(0, 63, 7)]), 25))
    assert len(calls) == 25
    assert all(torch.equal(inputs, wanted) for (inputs,), wanted in zip(calls, expected, strict=True))
    # 6.5, 7.5, ... 25.5 ms: median 16; quartiles of 20 values, exclusive: 5.25 places from either end
    assert found == pytest.approx(
        {"inference_batch": 3, "inference_ms_per_batch": 16.0, "inference_ms_per_batch_iqr": 10.5}
    )


def test_blocks_are_timed_without_their_last_token_as_input(timed):
    _, calls = timed(TOKENS, evaluation(batching="blocks"), 4)
    assert {tuple(inputs.shape) for (inputs,) in calls} == {(4, 6)}
    assert torch.equal(calls[1][0], TOKENS[28:56].view(4, 7)[:, :-1])


def test_a_split_without_a_full_batch_has_no_time(timed):
    assert timed(TOKENS[:23], evaluation(), 3) == ({}, [])  # 7 tokens a column: one segment of 6
    assert timed(TOKENS[:0], evaluation(), 3) == ({}, [])


def test_as_many_tokens_as_a_batch_needs_have_one(timed):
    found, calls = timed(TOKENS[:24], evaluation(), 3)
    assert found["inference_batch"] == 3
    assert len(calls) == 25


# in records

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


def test_to_train_on_nothing_is_an_error_of_one_sentence(executed):
    record = executed(corpus="{written: {untrained: true}}")
    assert record.status == "error"
    assert record.message.startswith("ExecutionError: train: batch_size 4 and seq_len 7 ")


def test_a_stride_with_carried_state_is_an_error_before_anything_is_trained(executed):
    record = executed(None, "train.eval_stride=3")
    assert record.status == "error"
    assert record.message.startswith("ExecutionError: train.eval_stride is for backbones without state")
    assert record.curve == ()
    assert "train_ms_per_batch" not in record.metrics


@pytest.mark.parametrize(("changes", "carried"), [((), 1), (("train.batching=blocks",), 0)])
def test_blocks_carry_no_state(executed, changes, carried):
    assert executed(None, *changes).metrics["state_carried"] == carried
