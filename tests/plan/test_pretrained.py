"""Pretrained weights in a plan: trials known by their content and not by their place, mistakes located, no network."""

import json
import shutil

import huggingface_hub
import pytest
from handmade import changed
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2Model
from transformers.utils import logging

from harness.plan import load

PRETRAINED = [
    ("lstm: {d_model: 8, num_layers: 1, dropout: 0.1}", "gpt2: {weights: pretrained, path: one, dropout: 0}"),
    *[("  - mos: {num_mixtures: 2}\n", ""), ("[1, 2]", "[1]")],
]
SUITE = changed(*PRETRAINED)


@pytest.fixture
def one(tmp_path):
    """The folder one/, with a GPT-2 for 12 words."""
    logging.disable_progress_bar()
    sizes = {"vocab_size": 12, "n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 32}
    model = GPT2Model(GPT2Config(**sizes, bos_token_id=None, eos_token_id=None))
    model.save_pretrained(tmp_path / "one")
    return tmp_path / "one"


def trial(write, *replacements, overrides=()):
    suite = load(write(changed(*PRETRAINED, *replacements)), overrides)
    return suite, suite.trials[0]


def test_a_trial_is_known_by_what_its_weights_are_and_not_by_where(write, one):
    suite, first = trial(write)
    # counted without reading weights: V d + 32 d + L (12 d^2 + 13 d) + 2 d, and the head's V d + V
    head = 12 * 16 + 12
    assert suite.candidate_of(first).params == (12 * 16 + 32 * 16 + 3 * (12 * 256 + 13 * 16) + 2 * 16 + head, head)
    shutil.copytree(one, one.with_name("two"))
    copied, second = trial(write, ("path: one", "path: two"))
    assert first.id == second.id
    assert suite.contents_of(first).backbone == copied.contents_of(second).backbone
    place = one.with_name("two") / "model.safetensors"
    tensors = load_file(place)
    tensors["ln_f.bias"][0] += 1e-3
    save_file(tensors, place)
    assert trial(write, ("path: one", "path: two"))[1].id != first.id
    assert trial(write, ("dropout: 0", "dropout: 0.1"))[1].id != first.id


def test_random_weights_and_their_defaults_leave_ids_as_they_were(write):
    def of(params):
        return trial(write, ("weights: pretrained, path: one, dropout: 0", params))[1].id

    plain = of("d_model: 16, num_layers: 2, num_heads: 2")
    written_out = "d_model: 16, num_layers: 2, num_heads: 2, size: small, weights: random, path: null"
    assert of(f"{written_out}, gradient_checkpointing: false, precision: fp32") == plain
    assert of(f"{written_out}, precision: bf16") != plain


def test_public_weights_are_planned_without_them(write, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *args, **kwargs: pytest.fail("went to the hub"))
    public = (("vocab_size: 12", "vocab_size: 50257"), ("path: one, ", ""))
    suite, small = trial(write, *public)
    assert suite.candidate_of(small).params[0] == 124_439_808 + 50_257 * 768 + 50_257
    medium_suite, medium = trial(write, *public, ("pretrained", "pretrained, size: medium"))
    assert medium_suite.contents_of(medium).backbone.startswith("openai-community/gpt2-medium@6dcaa7a")
    assert len({small.id, medium.id, trial(write, public[0], ("weights: pretrained, path: one, ", ""))[1].id}) == 3


def test_a_matched_width_keeps_the_content(write, one):
    text = SUITE.replace("  - softmax\n", "  - softmax\n  - mos: {num_mixtures: 2}\n")
    suite = load(write(text + "match: {params: softmax, vary: d_embed}\n"))
    plain = load(write(text))
    (content,) = {suite.contents_of(each) for each in suite.trials}
    assert content == plain.contents_of(plain.trials[0])


def with_config(**values):
    def change(folder):
        place = folder / "config.json"
        place.write_text(json.dumps({**json.loads(place.read_text()), **values}))

    return change


def pickled(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


MISTAKES = [  # what is replaced in the suite, what is done to the folder of weights, where it is said
    ((), pickled, "6:39: backbones.0.gpt2.path"),
    (("vocab_size: 12", "vocab_size: 13"), None, "6:21: backbones.0.gpt2.weights"),
    ((), with_config(n_layer=4), "6:39: backbones.0.gpt2.path"),
    (("dropout: 0", "num_heads: 4"), None, "6:55: backbones.0.gpt2.num_heads"),
    (("seq_len: 7", "seq_len: 33"), None, "9:71: train.seq_len"),
]


@pytest.mark.parametrize(("change", "spoil", "place"), MISTAKES)
def test_mistakes_are_located(problems, one, change, spoil, place):
    if spoil is not None:
        spoil(one)
    (problem,) = problems(SUITE.replace(*change) if change else SUITE)
    assert problem.startswith(f"{place}: ")


def test_a_block_is_as_long_as_the_positions_and_the_token_that_is_only_a_target(write, one, problems):
    blocks = ("seq_len: 7", "seq_len: 33, batching: blocks")  # 32 tokens are read
    assert trial(write, blocks)[1].train.seq_len == 33
    (problem,) = problems(SUITE.replace(blocks[0], blocks[1].replace("33", "34")))
    assert problem.endswith("has 32 positions, and reads 33 tokens")
