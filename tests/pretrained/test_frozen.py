"""Trials on a frozen backbone: its own perplexity, states computed once, kept, checked, and read."""

import math
import os
import shutil
import signal

import pytest
import torch
from causal_models import saved
from torch.nn.functional import cross_entropy
from trained import before_steps, loaded, outcome, ran

from harness.backbones import hf
from harness.errors import HarnessError, StorageError, SuiteError
from harness.machine import files
from harness.plan.specs import ComponentSpec
from harness.plan.suite_file import CheckpointSpec
from harness.registry import CORPORA
from harness.trial.setup import with_states

pytestmark = pytest.mark.system

BLOCK = 16
SUITE = f"""
name: tiny
version: 1
corpora: [{{markov: {{vocab_size: 12, num_tokens: 1000, branching: 3}}}}]
backbones: [{{hf: {{model: ../model, frozen: true}}}}]
heads: [{{softmax: {{start: pretrained}}}}, {{mos: {{num_mixtures: 2}}}}]
train: {{optimizer: adamw, lr: 0.01, epochs: 2, batch_size: 4, seq_len: {BLOCK}, batching: blocks, shuffle: true}}
seeds: [1]
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    """The model in the folder that the suite names; the cache is empty."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return saved(tmp_path / "model", "gemma2")[1]


@pytest.fixture
def specs(tmp_path, model):
    """The trials of the suite: of the model's own output layer, and of another head."""
    return loaded(tmp_path, SUITE).trials


def corpus_of(spec):
    return CORPORA.get(spec.corpus.name)(**spec.corpus.params).load(None)


def shards(tmp_path):
    return sorted((tmp_path / "cache" / "states").rglob("*.safetensors"))


def refuse_to_load(monkeypatch):
    monkeypatch.setattr(hf, "_pretrained", lambda *_: pytest.fail("the backbone was loaded"))


def test_untrained_it_has_the_perplexity_that_transformers_gives_the_blocks(tmp_path, model):
    spec, _ = loaded(tmp_path, SUITE, "train.epochs=0").trials
    record, nats = ran(spec, tmp_path), []
    for block in corpus_of(spec).test.split(BLOCK):
        if len(block) > 1:
            with torch.no_grad():
                nats.append(cross_entropy(model(block[None]).logits[0, :-1], block[1:], reduction="none"))
    nats = torch.cat(nats).double()
    assert record.metrics["scored_test_tokens"] == len(nats)
    assert math.isclose(record.metrics["test_ppl"], nats.mean().exp().item(), rel_tol=1e-6)
    assert record.not_certified == ""
    assert record.certificate.nll_gap < 1e-5


def test_a_trial_reads_the_states_that_the_backbone_in_memory_computes(tmp_path, specs):
    first, second = (ran(spec, tmp_path / "kept") for spec in specs)
    assert all(each.certificate.fault is None for each in (first, second))
    assert first.metrics["test_ppl"] < 12
    memory = loaded(tmp_path, SUITE.replace("frozen: true", "frozen: false")).trials[1]
    corpus = corpus_of(specs[1])
    reading = with_states(specs[1], corpus)
    assert torch.equal(reading.train, corpus.train)
    body = hf.HuggingFaceModel(12, **memory.backbone.params).eval()
    with torch.no_grad():
        for split in ("train", "valid", "test"):
            tokens_N = getattr(corpus, split)
            expected = torch.cat([body(block[None]).layers[-1][0] for block in tokens_N.split(BLOCK)])
            found = reading.states[split].rows(torch.arange(len(tokens_N)))
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)  # the states are sums of numbers near 1


def test_a_second_trial_on_the_same_states_computes_nothing_and_never_loads_the_backbone(tmp_path, specs, monkeypatch):
    first = ran(specs[0], tmp_path / "one")
    times = [each.stat().st_mtime_ns for each in shards(tmp_path)]
    assert len(times) == 3
    refuse_to_load(monkeypatch)
    read, read_ends = [], hf._read_ends
    monkeypatch.setattr(hf, "_read_ends", lambda *given: read.append(1) or read_ends(*given))
    assert outcome(ran(specs[0], tmp_path / "two")) == outcome(first)
    assert len(read) == 1  # its embedding and output matrix, by the trial's own model
    assert ran(specs[1], tmp_path / "two").status == "ok"
    assert [each.stat().st_mtime_ns for each in shards(tmp_path)] == times


@pytest.mark.parametrize("change", ["text", "block", "model", "layers", "dtype"])
def test_other_states_are_kept_beside_them(change, tmp_path, specs):
    with_states(specs[0], corpus_of(specs[0]))
    if change == "model":
        saved(tmp_path / "model", "llama")
    changes = {
        "text": ("num_tokens: 1000", "num_tokens: 1100"),
        "block": ("seq_len: 16", "seq_len: 17"),
        "model": ("", ""),
        "layers": ("frozen: true", "frozen: true, layers: [0, -1]"),
        "dtype": ("frozen: true", "frozen: true, dtype: bfloat16"),
    }
    other = loaded(tmp_path, SUITE.replace(*changes[change])).trials[0]
    found = with_states(other, corpus_of(other))
    assert len(shards(tmp_path)) == 6
    assert found.states["train"].rows(torch.tensor([[0, 1]])).shape == (1, 2, 32 if change == "layers" else 16)


@pytest.mark.parametrize("damage", ["missing", "cut off", "one bit"])
def test_what_is_missing_or_damaged_is_computed_again_with_the_same_bits(damage, tmp_path, specs, monkeypatch):
    monkeypatch.setattr("harness.pretrained.kept_states.SHARD_BYTES", 100 * 16 * 4)  # six blocks
    with_states(specs[0], corpus_of(specs[0]))
    files = shards(tmp_path)
    assert len(files) == 11 + 2 + 2  # 1000, 100 and 100 tokens in shards of 96
    before, victim = [each.read_bytes() for each in files], files[5]
    if damage == "missing":
        victim.unlink()
    elif damage == "cut off":
        victim.write_bytes(before[5][:-16])
    else:
        victim.write_bytes(before[5][:-1] + bytes([before[5][-1] ^ 1]))
    with_states(specs[0], corpus_of(specs[0]))
    assert [each.read_bytes() for each in shards(tmp_path)] == before


def test_killed_while_states_are_computed_it_goes_on_with_the_rest(tmp_path, specs, monkeypatch):
    monkeypatch.setattr("harness.pretrained.kept_states.SHARD_BYTES", 100 * 16 * 4)
    corpus = corpus_of(specs[0])
    with_states(specs[0], corpus)
    before = {each: each.read_bytes() for each in shards(tmp_path)}
    shutil.rmtree(tmp_path / "cache" / "states")
    if not (child := os.fork()):
        done = []
        try:
            with_states(
                specs[0], corpus, lambda *_: done.append(0) or (len(done) == 4 and os.kill(os.getpid(), signal.SIGKILL))
            )
        finally:
            os._exit(70)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert 4 <= len(shards(tmp_path)) < len(before)
    done = []
    with_states(specs[0], corpus, lambda *progress: done.append(progress))
    assert len(done) == len(before) - 4
    assert done[-1] == ("test", 100, 100)
    assert {each: each.read_bytes() for each in shards(tmp_path)} == before


def test_killed_while_it_trains_it_goes_on_with_the_same_bits(tmp_path, specs, monkeypatch):
    spec, every_step = specs[1], CheckpointSpec(epochs=1, minutes=1e-9)
    whole = ran(spec, tmp_path / "whole")
    refuse_to_load(monkeypatch)
    if not (child := os.fork()):
        try:
            with before_steps(lambda number: number == 20 and os.kill(os.getpid(), signal.SIGKILL)):
                ran(spec, tmp_path / "cut", checkpoint=every_step)
        finally:
            os._exit(70)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    begun = []
    with before_steps(begun.append):
        record = ran(spec, tmp_path / "cut", checkpoint=every_step)
    assert len(begun) == 30 - 20  # 62 blocks are 15 steps an epoch
    assert record.environment.sessions == 2
    assert outcome(record) == outcome(whole)


def test_without_room_nothing_is_computed(tmp_path, specs, monkeypatch):
    refuse_to_load(monkeypatch)
    usage = shutil.disk_usage(tmp_path)._replace(free=files.ROOM + 76_800 - 1)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StorageError, match=r"the hidden states of the text take 0\.1 MB, and .* has 134\.3 MB left"):
        with_states(specs[0], corpus_of(specs[0]))
    assert shards(tmp_path) == []


def test_a_model_that_cannot_be_read_is_refused_in_one_sentence(tmp_path, specs):
    weights = tmp_path / "model" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-16])
    with pytest.raises(HarnessError, match=r"model: .* cannot be read"):
        with_states(specs[0], corpus_of(specs[0]))
    assert shards(tmp_path) == []


def test_a_model_that_reads_later_tokens_is_refused(tmp_path, specs, monkeypatch):
    forward = hf.HuggingFaceModel.forward

    def peeking(self, tokens_BT, state=None):
        found = forward(self, tokens_BT, state)
        return found._replace(layers=tuple(layer + 0.02 * layer.roll(-1, 1) for layer in found.layers))

    monkeypatch.setattr(hf.HuggingFaceModel, "forward", peeking)
    record = ran(specs[0], tmp_path)
    assert record.status == "error"
    assert record.message.startswith(
        "ExecutionError: backbone hf: the state of a token changes with the tokens after it"
    )
    assert shards(tmp_path) == []


def test_a_stream_has_no_blocks_to_keep(tmp_path, model):
    with pytest.raises(SuiteError, match=r"tiny.yaml:\d+:\d+: train.batching: the states of the frozen"):
        loaded(tmp_path, SUITE.replace("batching: blocks", "batching: stream"))


def test_a_trial_of_another_backbone_has_no_states(specs):
    spec = specs[0].model_copy(update={"backbone": ComponentSpec(name="lstm", params={"d_model": 4})})
    assert with_states(spec, corpus_of(spec)).states == {}
