"""GPT-2's pretrained weights: what a folder gives, what is refused and in which words, what they are known by."""

import hashlib
import shutil
from contextlib import nullcontext
from functools import partial

import huggingface_hub
import pytest
import torch
from damaged_models import DAMAGES, change_config, change_tensors
from safetensors.torch import load_file, save_file

from harness.backbones import gpt2
from harness.backbones.gpt2 import GPT2
from harness.model import on_meta
from harness.protocols import StartsFromFiles

V, POSITIONS = 11, 32


def randomly_initialised(name):
    """A model of transformers, whose import takes seconds."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(3)
    sizes = {"vocab_size": V, "n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": POSITIONS}
    config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    return getattr(transformers, name)(config)


@pytest.fixture
def saved(tmp_path):
    """A folder as transformers writes it, and the model in it."""
    model = randomly_initialised("GPT2LMHeadModel")
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model", model.eval()


def load(folder, vocab_size=V, **params):
    return GPT2(vocab_size, weights="pretrained", path=folder, **params).eval()


def assert_has_the_weights_of(backbone, model):
    found, expected = backbone.model.state_dict(), model.state_dict()
    assert found.keys() == expected.keys()
    assert len(found) == 3 * 12 + 4
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("cls", ["GPT2Model", "GPT2LMHeadModel"])
def test_a_folder_that_transformers_saved_loads_with_all_weights_equal(tmp_path, cls):
    model = randomly_initialised(cls)
    model.save_pretrained(tmp_path)
    assert_has_the_weights_of(load(tmp_path), getattr(model, "transformer", model))


def test_a_loaded_model_computes_what_transformers_computes(saved):
    folder, model = saved
    tokens = torch.randint(V, (2, POSITIONS), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model.transformer(tokens, output_hidden_states=True).hidden_states[1:]
        layers = load(folder).layer_dims, load(folder)(tokens).layers
        assert layers[0] == (16, 16, 16)
        torch.testing.assert_close(layers[1], expected, rtol=0, atol=0)
        with pytest.raises(ValueError, match="gpt2 has 32 positions, the segment has 33 tokens"):
            load(folder)(torch.zeros(1, POSITIONS + 1, dtype=torch.int64))


def test_several_files_load_as_one(tmp_path):
    model = randomly_initialised("GPT2Model")
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_has_the_weights_of(load(tmp_path), model)


def test_what_the_public_files_hold_beside_the_weights_is_not_read(saved):
    # they were saved before masks and tied weights were left out
    folder, model = saved
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()
    tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, POSITIONS, POSITIONS).tril()
    tensors["transformer.h.2.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, folder / "model.safetensors")
    assert_has_the_weights_of(load(folder), model.transformer)


def test_half_precision_files_load_as_float32(saved):
    folder, model = saved
    model.half().save_pretrained(folder)
    assert_has_the_weights_of(load(folder), model.transformer.float())
    assert load(folder).embedding.weight.dtype == torch.float32


def test_dropout_is_the_suites_and_dimensions_that_agree_may_be_given(saved):
    backbone = load(saved[0], dropout=0.25, d_model=16, num_layers=3, num_heads=4)
    assert {module.p for module in backbone.modules() if isinstance(module, torch.nn.Dropout)} == {0.25}


UNREADABLE = "path: {0}/model.safetensors cannot be read as safetensors ("
SAID = {  # of a folder that was damaged; of others that its weights cannot be read
    **dict.fromkeys(("no folder", "no config"), "path: {0}/config.json does not exist"),
    **dict.fromkeys(
        ("no JSON", "deep JSON", "config is a list"), "path: {0}/config.json cannot be read as a mapping in JSON"
    ),
    "no weights": "path: {0} holds no model.safetensors",
    "pickle": "path: {0} holds pytorch_model.bin, a pickle, which can run code when it is read, and no "
    "model.safetensors; convert it where you trust it: "
    "AutoModelForCausalLM.from_pretrained(folder).save_pretrained(another)",
    "code": "path: {0}/config.json: model_type is evil, expected gpt2",
    "index": "path: {0}/model.safetensors.index.json names files that are not in its folder",
    "left over tensor": "path: {0}/model.safetensors: evil is not a tensor of this GPT-2, or is repeated",
}
NORM = "transformer.ln_f.bias"
TENSORS = {  # name: (what happens to the tensors, the sentence)
    "missing tensor": (
        lambda tensors: tensors.pop("transformer.h.1.mlp.c_fc.bias"),
        "path: {0} has no tensor h.1.mlp.c_fc.bias in its safetensors",
    ),
    "tensor twice": (
        lambda tensors: tensors.update({"ln_f.bias": torch.zeros(16)}),
        "ln_f.bias is not a tensor of this GPT-2, or is repeated",
    ),
    "shape": (
        lambda tensors: tensors.update({NORM: torch.ones(9)}),
        "path: {0}/model.safetensors: transformer.ln_f.bias is F32 [9], expected floats [16]",
    ),
    "integers": (
        lambda tensors: tensors.update({NORM: torch.ones(16, dtype=torch.int8)}),
        "path: {0}/model.safetensors: transformer.ln_f.bias is I8 [16], expected floats [16]",
    ),
}
CONFIGS = [  # an entry of config.json, the sentence
    ("n_layer", 2, "path: {0}/model.safetensors: transformer.h.2."),
    ("n_embd", 20, "expected floats"),
    ("n_head", 3, "num_heads must divide d_model, got 3 heads for a width of 16"),
    ("n_head", "4", "path: {0}/config.json: n_head is 4, expected a whole number from 1"),
    ("model_type", "llama", "path: {0}/config.json: model_type is llama, expected gpt2"),
    ("activation_function", "relu", "path: {0}/config.json: activation_function is relu, expected gelu_new"),
    (
        *("scale_attn_by_inverse_layer_idx", True),
        "path: {0}/config.json: scale_attn_by_inverse_layer_idx is True, expected False",
    ),
    ("n_inner", 32, "path: {0}/config.json: n_inner is 32, expected 4 n_embd"),
]
MISTAKES = {
    **{name: (damage, SAID.get(name, UNREADABLE)) for name, damage in DAMAGES.items()},
    **{name: (partial(change_tensors, change=change), said) for name, (change, said) in TENSORS.items()},
    **{f"{key} {value}": (partial(change_config, **{key: value}), said) for key, value, said in CONFIGS},
}


@pytest.mark.parametrize(("spoil", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_an_unfit_folder_is_refused_when_planned_and_when_built(saved, spoil, sentence):
    folder, _ = saved
    spoil(folder)
    for place in (on_meta(), nullcontext()):
        with place, pytest.raises(ValueError) as caught:
            load(folder)
        assert sentence.format(folder) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"vocab_size": 12}, "weights: their vocabulary has 11 entries, the corpus 12"),
        ({"d_model": 32}, "d_model: the weights have 16, got 32"),
        ({"num_layers": 2}, "num_layers: the weights have 3, got 2"),
        ({"num_heads": 2}, "num_heads: the weights have 4, got 2"),
        ({"size": "tiny"}, r"size: 'tiny' is \(d_model, layers, heads\) = \(128, 4, 4\), .* is \(16, 3, 4\)"),
    ],
)
def test_what_contradicts_the_weights_is_refused(saved, params, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(saved[0], **params)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"path": "/x"}, "path is for pretrained weights: add weights: pretrained"),
        ({"weights": "pretrained", "size": "tiny"}, "size: there are no public weights of the size 'tiny'"),
        ({"weights": "pretrained", "num_heads": 6}, "num_heads: the weights have 12, got 6"),
        ({"weights": "pretrained"}, "weights: their vocabulary has 50,257 entries, the corpus 11"),
    ],
)
def test_what_cannot_be_meant_is_refused(params, sentence):
    with pytest.raises(ValueError, match=sentence):
        GPT2(11, **params)


def test_planning_copies_no_weights_and_needs_no_network(saved, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *args, **kwargs: pytest.fail("went to the hub"))
    with on_meta():
        assert load(saved[0]).embedding.weight.is_meta
        for size, shape in gpt2.SIZES.items():
            if size != "tiny":
                assert GPT2(50_257, size=size, weights="pretrained").layer_dims == (shape.d_model,) * shape.num_layers


def test_content_is_the_weights_hash_and_their_heads_wherever_they_lie(saved, tmp_path):
    folder, _ = saved
    content = GPT2.content(weights="pretrained", path=str(folder), dropout=0.3)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert content == f"{digest} heads=4"
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert GPT2.content(weights="pretrained", path=tmp_path / "elsewhere") == content
    change_config(folder, n_head=2)  # another model, by the same tensors
    assert GPT2.content(weights="pretrained", path=folder) == f"{digest} heads=2"
    change_tensors(folder, lambda tensors: tensors["transformer.ln_f.bias"].add_(1e-3))
    assert digest not in GPT2.content(weights="pretrained", path=folder)


def test_content_of_several_files_changes_with_each(tmp_path):
    randomly_initialised("GPT2Model").save_pretrained(tmp_path, max_shard_size="10KB")
    files = sorted(tmp_path.glob("*.safetensors"))
    found = {GPT2.content(weights="pretrained", path=tmp_path)}
    for place in files:
        tensors = load_file(place)
        next(iter(tensors.values())).add_(1)
        save_file(tensors, place)
        found.add(GPT2.content(weights="pretrained", path=tmp_path))
    assert len(found) == 1 + len(files)


def test_random_weights_have_no_content_and_public_ones_are_known_without_them():
    assert isinstance(GPT2, StartsFromFiles)
    assert GPT2.content() is GPT2.content(size="medium", dropout=0.2) is None
    contents = [GPT2.content(weights="pretrained", size=size) for size in gpt2.HUB]
    assert len(set(contents)) == 4
    assert contents[0] == "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707 heads=12"
    assert contents[1] == "openai-community/gpt2-medium@6dcaa7a952f72f9298047fd5137cd6e4f05f41da"


@pytest.fixture
def hub(saved, monkeypatch):
    """The saved model as the hub's small one: what was asked of the hub."""
    folder, model = saved
    asked = []

    def download(repository, name, *, revision):
        asked.append((repository, name, revision))
        return str(folder / name)

    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setitem(gpt2.SIZES, "small", gpt2.Shape(16, 3, 4, V, POSITIONS))
    monkeypatch.setitem(gpt2.HUB, "small", ("of/somebody", "1234567890", digest))
    return asked, folder, model


def test_public_weights_come_from_the_pinned_commit_as_safetensors(hub):
    asked, folder, model = hub
    GPT2.fetch(weights="random")
    GPT2.fetch(weights="pretrained", path=folder)
    assert asked == []
    GPT2.fetch(weights="pretrained")
    assert asked == [("of/somebody", "model.safetensors", "1234567890")]
    assert_has_the_weights_of(GPT2(V, weights="pretrained"), model.transformer)
    assert GPT2.content(weights="pretrained") == GPT2.content(weights="pretrained", path=folder)


def test_a_flipped_bit_of_public_weights_is_found(hub):
    _, folder, _ = hub
    place = folder / "model.safetensors"
    content = bytearray(place.read_bytes())
    content[-1] ^= 1
    place.write_bytes(bytes(content))
    for use in (lambda: GPT2.fetch(weights="pretrained"), lambda: GPT2(V, weights="pretrained")):
        with pytest.raises(ValueError, match=r"has another content: expected sha256 [0-9a-f]{64}, found .*; remove it"):
            use()


def test_offline_the_sentence_says_what_is_missing_where_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(OSError) as caught:
        GPT2.fetch(weights="pretrained", size="large")
    assert str(caught.value) == (
        f"model.safetensors of openai-community/gpt2-large at 32b71b1 is not in {tmp_path} and could not be downloaded "
        "(LocalEntryNotFoundError); get it and config.json from https://huggingface.co/openai-community/gpt2-large, "
        "and give the folder that holds them as the backbone's path"
    )
