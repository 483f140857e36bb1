"""Before trials train: corpora and weights are made ready and are what was planned; trials of one seed are paired."""

import math
from types import SimpleNamespace

import handmade
import pytest
import torch
from disturbed import suite_text
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional
from trained import loaded, ran
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

from harness import plan
from harness.corpora.synthetic import Markov
from harness.errors import CorpusError, WeightsError
from harness.records import store
from harness.registry import BACKBONES
from harness.training.step import EagerStep
from harness.trial import routes
from harness.trial.setup import fetch_sources, load_planned, with_exact_route


class Stored(nn.Module):
    """A backbone whose weights come from files, elsewhere."""

    said = "abc"
    fault: Exception | None = None
    unfit: Exception | None = None

    def __init__(self, vocab_size):
        super().__init__()
        if self.unfit is not None:
            raise self.unfit
        self.layer_dims, self.embedding = (4,), nn.Embedding(vocab_size, 4)

    @classmethod
    def content(cls) -> str | None:
        if isinstance(cls.said, Exception):
            raise cls.said
        return cls.said

    @classmethod
    def fetch(cls) -> None:
        if cls.fault is not None:
            raise cls.fault


@pytest.fixture
def planned(tmp_path, monkeypatch):
    BACKBONES.names()  # discover before the table is changed
    monkeypatch.setitem(BACKBONES._classes, "stored", Stored)
    return loaded(tmp_path, suite_text("softmax", backbones="backbones: [stored]"))


@pytest.mark.parametrize(("where", "said"), [("fault", "no network, says the hub"), ("unfit", "not finite")])
def test_weights_that_cannot_be_had_or_used_are_a_sentence_before_a_trial_begins(
    planned, tmp_path, monkeypatch, where, said
):
    monkeypatch.setattr(Stored, where, ValueError(said))
    with pytest.raises(WeightsError, match=said):
        fetch_sources(planned.trials, tmp_path)


def test_a_worker_refuses_weights_that_are_no_longer_what_was_planned(planned, tmp_path, monkeypatch):
    monkeypatch.setattr(Stored, "said", "abd")
    with pytest.raises(CorpusError, match=r"stored has changed since the trials were planned; run the"):
        load_planned(planned.trials[0], tmp_path, planned.contents_of(planned.trials[0]))
    assert load_planned(planned.trials[0], tmp_path, None).vocab_size == 12  # nothing was planned: nothing is compared
    monkeypatch.setattr(Stored, "said", ValueError("the folder is gone"))
    with pytest.raises(WeightsError, match="the folder is gone"):
        load_planned(planned.trials[0], tmp_path, planned.contents_of(planned.trials[0]))


SUITE = """\
name: started
version: 1
corpora:
  - markov: {vocab_size: 12, num_tokens: 400, branching: 3}
backbones:
  - gpt2: {weights: pretrained, path: saved}
heads:
  - softmax: {projection: true, bias: false, start: embedding}
train: {optimizer: adam, lr: 0.01, epochs: 0, batch_size: 4, seq_len: 50, eval_batch_size: 1}
seeds: [1]
"""


@pytest.fixture
def model(tmp_path):
    """A GPT-2 for 12 words in the folder suites/saved/, far from uniform."""
    logging.disable_progress_bar()
    torch.manual_seed(0)
    sizes = {"vocab_size": 12, "n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 64}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=None, eos_token_id=None, initializer_range=0.5)).eval()
    model.save_pretrained(tmp_path / "suites" / "saved")
    return model


@pytest.mark.system
def test_an_untrained_trial_scores_as_transformers_does_and_changed_weights_wait(tmp_path, model):
    suite, place = loaded(tmp_path, SUITE), tmp_path / "suites" / "saved" / "model.safetensors"
    (spec,) = suite.trials
    whole = place.read_bytes()
    tensors = load_file(place)
    tensors["transformer.ln_f.bias"][0] += 1
    save_file(tensors, place)
    with pytest.raises(CorpusError, match="has changed since the trials were planned; run the command again"):
        ran(spec, tmp_path, contents=suite.contents_of(spec))
    assert store.load(tmp_path, spec.id) is None
    place.write_bytes(whole)
    record = ran(spec, tmp_path, contents=suite.contents_of(spec))
    assert record.status == "ok", record.message
    test = Markov(vocab_size=12, num_tokens=400, branching=3).load(tmp_path).test
    with torch.no_grad():
        nlls = [
            functional.cross_entropy(model(piece[None, :-1]).logits[0], piece[1:], reduction="sum").item()
            for piece in (test[start : start + 51] for start in range(0, len(test) - 1, 50))
        ]
    assert record.metrics["test_ppl"] == pytest.approx(math.exp(sum(nlls) / (len(test) - 1)), rel=1e-4)
    assert record.metrics["test_ppl"] > 20  # nothing like the uniform 12


PAIRED_BACKBONES = """\
backbones:
  - lstm: {d_model: 8, num_layers: 2, dropout: 0.5}
  - transformer_encoder: {d_model: 8, num_layers: 2, num_heads: 2, d_ff: 8, dropout: 0.5, layer_dropout: 0.5}"""
PAIRED = suite_text("softmax", "{mos: {num_mixtures: 3, dropout: 0.5}}", backbones=PAIRED_BACKBONES, seeds="[1, 2]")


@pytest.fixture(scope="module", params=["in order", "shuffled"])
def seen(request, tmp_path_factory):
    """What went through each trial's steps, by backbone, head and seed: segments, the backbone's initial weights, and
    what it gave in the first step, when the weights were still those.
    """
    folder, found, step = tmp_path_factory.mktemp("pairing"), {}, EagerStep.__call__
    suite = loaded(folder, PAIRED, f"train.shuffle={str(request.param == 'shuffled').lower()}", "train.epochs=2")
    for spec in plan.select(suite.trials, ("seed=1", "head=softmax")):
        trial = SimpleNamespace(model=None, segments=[], start=None, hidden=[])
        found[spec.backbone.name, spec.head.name, spec.seed] = trial

        def watched(self, segment, trial=trial):
            if trial.model not in (None, self.model):  # the small model by which a record's code is known
                return step(self, segment)
            if trial.model is None:
                trial.model = self.model
                backbone = self.model.backbone
                trial.start = {name: value.clone() for name, value in backbone.state_dict().items()}
                hook = backbone.register_forward_hook(lambda _, args, hidden: trial.hidden.extend(hidden.layers))
            trial.segments.append(torch.stack([segment.inputs, segment.targets]))
            step(self, segment)
            if len(trial.segments) == 1:
                hook.remove()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EagerStep, "__call__", watched)
            record = ran(spec, folder)
        assert record.status == "ok", record.message
    return found


def same(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(ours) == len(theirs) > 0 and all(map(torch.equal, ours, theirs))


@pytest.mark.system
@pytest.mark.parametrize("backbone", ["lstm", "transformer_encoder"])
def test_heads_under_one_seed_share_segments_start_and_masks_and_another_seed_has_others(seen, backbone):
    softmax, mos, other = (seen[backbone, *each] for each in (("softmax", 1), ("mos", 1), ("softmax", 2)))
    assert same(softmax.segments, mos.segments)
    assert softmax.start.keys() == mos.start.keys()
    assert same(list(softmax.start.values()), list(mos.start.values()))
    assert same(softmax.hidden, mos.hidden)  # of equal weights and inputs: equal masks, in every layer
    assert not torch.equal(softmax.start["embedding.weight"], other.start["embedding.weight"])
    assert not any(map(torch.equal, softmax.hidden, other.hidden))


def test_backbones_under_one_seed_see_one_order_which_follows_the_seed_where_it_is_shuffled(seen, request):
    assert same(seen["lstm", "mos", 1].segments, seen["transformer_encoder", "mos", 1].segments)
    one, other = (seen["lstm", "softmax", seed].segments for seed in (1, 2))
    assert same(one, other) == ("in order" in request.node.callspec.id)
    half = len(one) // 2
    assert same(one[:half], one[half:]) == ("in order" in request.node.callspec.id)  # two epochs


@pytest.mark.parametrize(
    ("device", "of_checkpoint", "expected"),
    [("cpu", "default", "default"), ("cpu", None, "onednn"), ("cuda", "default", "onednn")],
)
def test_a_trial_that_goes_on_has_the_route_of_its_checkpoint(device, of_checkpoint, expected, tiny_suite, monkeypatch):
    monkeypatch.setattr(routes, "checked_route", lambda route: route)  # each is exact on this machine
    task = handmade.task(plan.load(tiny_suite).trials[0], tiny_suite.parent, route="onednn", device=device)
    resumed = of_checkpoint and SimpleNamespace(session=SimpleNamespace(route=of_checkpoint))
    assert with_exact_route(task, resumed).route == expected
