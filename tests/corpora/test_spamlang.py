"""SpamLang: sequences of one symbol, and the perplexity 1 that a head of width 2 can reach."""

import math
from pathlib import Path

import pytest
import torch

from harness.corpora.batching import evaluation_blocks, training_segments
from harness.corpora.synthetic import SpamLang
from harness.distributions import Mixture

NOWHERE = Path("no/such/folder")


def test_a_sequence_is_one_symbol_and_symbols_are_uniform():
    corpus = SpamLang(vocab_size=5, num_sequences=5_000, repeats=3)
    facts, made = corpus.facts(), corpus.load(NOWHERE)
    assert facts.num_tokens == {"train": 15_000, "valid": 1_500, "test": 1_500}
    assert {name: len(getattr(made, name)) for name in facts.num_tokens} == facts.num_tokens
    rows = made.train.view(-1, 3)
    assert (rows == rows[:, :1]).all()
    counts = rows[:, 0].bincount(minlength=5)
    assert (counts - 1_000).abs().max() < 5 * math.sqrt(1_000 * 0.8)  # five standard deviations
    assert made.source_test_nll is None


def test_text_and_identity_depend_on_every_parameter_and_repeat():
    params = {"vocab_size": 7, "num_sequences": 50, "repeats": 4, "seed": 0}
    one = SpamLang(**params)
    assert torch.equal(one.load(NOWHERE).test, SpamLang(**params).load(NOWHERE).test)
    assert not torch.equal(one.load(NOWHERE).test, one.load(NOWHERE).valid)
    contents = {SpamLang(**{**params, name: value + 1}).facts().content for name, value in params.items()}
    assert len(contents | {one.facts().content}) == 5
    assert not torch.equal(one.load(NOWHERE).test, SpamLang(**{**params, "seed": 1}).load(NOWHERE).test)


def test_blocks_of_its_length_are_its_sequences():
    made = SpamLang(vocab_size=9, num_sequences=40, repeats=4).load(NOWHERE)
    for segment in training_segments(made.train, batch_size=8, seq_len=4, batching="blocks"):
        assert torch.equal(segment.inputs, segment.targets)
    for segment in evaluation_blocks(made.test, batch_size=2, seq_len=4):
        assert torch.equal(segment.inputs[segment.weight > 0], segment.targets[segment.weight > 0])


def test_a_softmax_of_width_two_can_say_it():
    V = 50
    angle_V = 2 * math.pi * torch.arange(V, dtype=torch.float64) / V
    W = torch.stack((angle_V.cos(), angle_V.sin()), dim=1)
    nll = Mixture((1e4 * W)[None, :, None], None, W).nll(torch.arange(V)[None])
    assert nll.max() < 1e-9


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"vocab_size": 1, "num_sequences": 10}, "vocab_size must be at least 2, got 1"),
        ({"vocab_size": 2, "num_sequences": 9}, "num_sequences must be at least 10, got 9"),
        ({"vocab_size": 2, "num_sequences": 10, "repeats": 1}, "repeats must be at least 2, got 1"),
    ],
)
def test_sizes_that_make_no_text(params, message):
    with pytest.raises(ValueError, match=message):
        SpamLang(**params)
    made = SpamLang(vocab_size=2, num_sequences=10, repeats=2).load(NOWHERE)  # the smallest sizes
    assert (len(made.train), len(made.valid), len(made.test)) == (20, 2, 2)
