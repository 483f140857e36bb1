"""Every head of the poster's ten rows starts as the pretrained model was, on a briefly trained GPT-2 of our own."""

import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

from harness import plan
from harness.corpora.batching import Segment
from harness.model import build
from harness.plan.specs import ComponentSpec
from harness.registry import CORPORA

SUITE = Path(__file__).parents[2] / "suites" / "gpt2_sizes.yaml"
T, STEPS, LIMIT = 32, 80, 0.005
OTHER_MODELS = ("sigsoftmax", "doc_poster")  # the sigmoid, and raw lower layers, that the pretrained model has not


def ten_rows():
    """The poster's heads, as a suite has them; those with a choice start as the embedding."""
    rows = [trial.head for trial in plan.load(SUITE).trials if trial.backbone.params["size"] == "small"][:10]
    start = {"softmax": {"start": "embedding"}, "sigsoftmax": {"start": "embedding"}}
    return [ComponentSpec(name=row.name, params={**row.params, **start.get(row.name, {})}) for row in rows]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(folder, tokens, V, its perplexity, that of the unigrams) on the text it was trained on, by words."""
    logging.disable_progress_bar()
    corpus = CORPORA.get("embedded")().load(Path())
    tokens = corpus.train[: 16 * T].view(16, T).long()
    V = corpus.vocab_size
    torch.manual_seed(0)
    rates, no_text = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}, {"bos_token_id": None, "eos_token_id": None}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_embd=64, n_layer=4, n_head=4, n_positions=T, **rates, **no_text))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(STEPS):
        rows = tokens[step % 2 :: 2]
        loss = functional.cross_entropy(model(rows).logits[:, :-1].flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        nll = functional.cross_entropy(model(tokens).logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    folder = tmp_path_factory.mktemp("trained")
    model.save_pretrained(folder)
    shares = torch.bincount(tokens[:, 1:].flatten()).double() / tokens[:, 1:].numel()
    unigram = math.exp(-sum(share * math.log(share) for share in shares.tolist() if share))
    return folder, tokens, V, math.exp(nll.item()), unigram


def ratio(trained, head):
    """Perplexity of the pretrained backbone under a new head, over that of the pretrained model."""
    folder, tokens, V, pretrained, _ = trained
    backbone = ComponentSpec(name="gpt2", params={"weights": "pretrained", "path": str(folder)})
    model = build(backbone, head, vocab_size=V, seed=1).eval()
    with torch.no_grad():
        distribution, _ = model(Segment(tokens[:, :-1], tokens[:, 1:]))
        return math.exp(distribution.mean_nll(tokens[:, 1:]).item()) / pretrained


def test_the_model_has_learned(trained):
    *_, pretrained, unigram = trained
    assert pretrained < unigram / 2


@pytest.mark.parametrize("row", range(10), ids=[str(head) for head in ten_rows()])
def test_a_head_starts_as_the_pretrained_model(trained, row, record_property):
    head = ten_rows()[row]
    found = ratio(trained, head)
    record_property("ratio", found)
    print(f"{head}: {found:.6f} of the pretrained perplexity {trained[3]:.3f} (unigrams {trained[4]:.1f})")
    assert (abs(found - 1) > LIMIT) if head.name in OTHER_MODELS else (abs(found - 1) < LIMIT)


def test_without_the_start_a_softmax_begins_anew(trained):
    params = {"projection": True, "bias": False}
    assert ratio(trained, ComponentSpec(name="softmax", params=params)) > 2


@pytest.mark.parametrize("params", [{}, {"projection": True, "bias": True}, {"tie_weights": True, "bias": False}])
def test_every_softmax_that_may_starts_as_the_pretrained_model_to_rounding(trained, params):
    head = ComponentSpec(name="softmax", params={**params, "start": "embedding"})
    assert abs(ratio(trained, head) - 1) < 1e-5
