"""SmolLM2-135M-Instruct, a real pretrained model: its own perplexity on three texts.

The folder is named by the environment variable HARNESS_TEST_SMOLLM2, the texts are the real corpora. Some minutes of a
core. Blocks are read without overlap. The harness does not score the first token of a block; the perplexities here were
measured once by transformers alone, in float32, on the same weights, with the token after each block scored, too.
"""

import math
import os
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy
from trained import loaded, ran
from transformers import AutoModelForCausalLM, AutoTokenizer

import harness.corpora

TOKENS, BLOCK, CHARACTERS = 8192, 512, 80_000
NOVEL = Path(harness.corpora.__file__).with_name("pride_and_prejudice.txt")
TEXTS = {  # the name -> its file in the folder of the real corpora, which part of it, the perplexity
    "novel": (NOVEL, slice(-CHARACTERS, None), 25.57),
    "wikitext": ("wikitext-103-heldout/wiki.valid.tokens", slice(CHARACTERS), 22.71),
    "ptb": ("ptb/ptb.test.txt", slice(CHARACTERS), 67.93),
}
SUITE = f"""
name: own
version: 1
corpora: [{{text: {{path: ../texts, tokenizer: {{pretrained: MODEL}}}}}}]
backbones: [{{hf: {{model: MODEL, frozen: true}}}}]
heads: [{{softmax: {{start: pretrained}}}}]
train: {{epochs: 0, batch_size: 1, seq_len: {BLOCK}, batching: blocks, optimizer: sgd, lr: 1.0}}
seeds: [1]
"""


@pytest.fixture(scope="module")
def folder():
    """The folder of the model."""
    if not (named := os.environ.get("HARNESS_TEST_SMOLLM2")):
        pytest.skip("name the folder of SmolLM2-135M-Instruct with HARNESS_TEST_SMOLLM2")
    return Path(named).resolve()


@pytest.mark.parametrize("text", TEXTS)
def test_its_own_perplexity_is_that_of_transformers(text, folder, real_data, tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    place, part, measured = TEXTS[text]
    whole = (real_data / place).read_text(encoding="utf-8")[part]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    read = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    ids_N = torch.tensor(read.input_ids)
    model, nats = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), []
    with torch.no_grad():
        for begin in range(0, TOKENS, BLOCK):
            logits_TV = model(ids_N[None, begin : begin + BLOCK]).logits[0]
            nats.append(cross_entropy(logits_TV, ids_N[begin + 1 : begin + BLOCK + 1], reduction="none").double())
    nats_BT = torch.stack(nats)
    assert round(nats_BT.mean().exp().item(), 2) == measured
    expected = nats_BT[:, :-1].mean().exp().item()

    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "test.txt").write_text(whole[: read.offset_mapping[TOKENS - 1][1]], encoding="utf-8")
    for split in ("train", "valid"):
        (texts / f"{split}.txt").write_text(whole[:2000], encoding="utf-8")
    (spec,) = loaded(tmp_path, SUITE.replace("MODEL", str(folder))).trials
    record = ran(spec, tmp_path)
    assert record.metrics["scored_test_tokens"] == TOKENS - TOKENS // BLOCK
    assert math.isclose(record.metrics["test_ppl"], expected, rel_tol=1e-5)
    assert record.certificate.fault is None
