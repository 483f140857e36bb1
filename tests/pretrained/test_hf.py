"""Models of the transformers library as backbones: their own perplexity, what is read of a folder, what is refused."""

import dataclasses
import json
import logging
import math
import shutil
from pathlib import Path

import pytest
import torch
from causal_models import GROUPED, KINDS, SHAPE, V, saved
from damaged_models import DAMAGES, change_config, change_tensors
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from harness.backbones import hf
from harness.backbones.hf import HuggingFaceModel
from harness.corpora.batching import Segment
from harness.model import LanguageModel, build, build_head, count_parameters, on_meta
from harness.plan.specs import ComponentSpec

TOKENS = torch.randint(V, (2, 9), generator=torch.Generator().manual_seed(0))


def with_own(**params):
    """The model's own output layer as a head."""
    return ComponentSpec(name="softmax", params={"start": "pretrained", **params})


OWN = with_own()


def own(folder, **params):
    """A model with its own output layer as the head."""
    backbone = HuggingFaceModel(V, model=folder, **params)
    return LanguageModel(backbone, build_head(OWN, backbone, V, None)).eval()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
@torch.no_grad()
def test_a_model_with_its_own_output_layer_computes_what_transformers_computes(kind, frozen, tmp_path):
    folder, model = saved(tmp_path, kind)
    expected = model.double()(TOKENS, output_hidden_states=True, use_cache=False)
    found = own(folder, frozen=frozen, layers=(0, -1))
    if frozen:  # its weights are read when it is called; the head's are the files'
        found.backbone._frozen_body.append(model.base_model)
    found.double()
    logp, state = found(Segment(TOKENS, TOKENS))
    assert state is None
    bound = 1e-12 if expected.logits.dtype == torch.float64 else 2e-6  # Mamba's own code rounds its logits to float32
    due = expected.logits.double().log_softmax(-1)
    torch.testing.assert_close(logp.log_probs(), due, rtol=0, atol=bound)
    first, top = found.hidden(Segment(TOKENS, TOKENS)).layers
    torch.testing.assert_close(top, expected.hidden_states[-1], rtol=0, atol=1e-12)
    if kind != "opt":  # it projects its last state only
        torch.testing.assert_close(first, expected.hidden_states[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_a_token_is_known_from_the_configuration(kind, tmp_path):
    folder, model = saved(tmp_path, kind)
    assert HuggingFaceModel.state_of_token(model=folder) == (own(folder).backbone.layer_dims[0], torch.float32)
    assert own(folder).backbone.layer_dims == (model.get_output_embeddings().weight.shape[1],)
    twice = HuggingFaceModel.state_of_token(model=folder, layers=(0, -1), dtype="bfloat16")
    assert twice == (2 * own(folder).backbone.layer_dims[0], torch.bfloat16)


ALIKE = {  # heads that can start as the model
    "softmax": {"projection": True},
    "mos": {"num_mixtures": 3, "activation": "none"},
    "moc": {"num_mixtures": 3, "activation": "none"},
}


@pytest.mark.parametrize("head", ALIKE)
@pytest.mark.parametrize("kind", ["llama", "gemma2", "phi", "granite"])
@torch.no_grad()
def test_heads_that_start_from_the_output_layer_are_the_model(head, kind, tmp_path):
    folder, model = saved(tmp_path, kind)
    backbone = HuggingFaceModel(V, model=folder)
    spec = ComponentSpec(name=head, params={"start": "pretrained", **ALIKE[head]})
    found = LanguageModel(backbone, build_head(spec, backbone, V, None)).eval().double()
    logp_BTV = found(Segment(TOKENS, TOKENS))[0].log_probs()
    torch.testing.assert_close(logp_BTV, model.double()(TOKENS).logits.log_softmax(-1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["llama", "gemma2", "phi"])
@pytest.mark.parametrize(
    ("head", "params"), [("mfs", {"num_input_layers": 1, "window": 0}), ("doc_poster", {"num_mixtures": 1})]
)
@torch.no_grad()
def test_heads_of_the_poster_start_from_the_pretrained_output_layer(head, params, kind, tmp_path):
    folder, model = saved(tmp_path, kind)
    backbone = HuggingFaceModel(V, model=folder)
    built = build_head(ComponentSpec(name=head, params={**params, "bias": kind == "phi"}), backbone, V, None)
    for facet in built.facets:  # without the noise that they start with
        facet.weight.copy_(torch.eye(16))
    found = LanguageModel(backbone, built).eval().double()(Segment(TOKENS, TOKENS))[0].log_probs()
    torch.testing.assert_close(found, model.double()(TOKENS).logits.log_softmax(-1), rtol=0, atol=1e-12)


def test_a_head_of_the_poster_needs_the_bias_of_the_pretrained_layer(tmp_path):
    backbone = HuggingFaceModel(V, model=saved(tmp_path, "phi")[0])
    with pytest.raises(ValueError, match="bias: the pretrained output layer has one; set bias to true"):
        build_head(ComponentSpec(name="doc_poster", params={"num_mixtures": 1}), backbone, V, None)


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
@torch.no_grad()
def test_a_first_token_is_read_before_each_segment_and_not_scored(frozen, tmp_path):
    folder, model = saved(tmp_path)
    due = model.double()(torch.hstack([torch.full((2, 1), 5), TOKENS])).logits.log_softmax(-1)[:, 1:]
    found = own(folder, frozen=frozen, first_token=5)
    if frozen:
        found.backbone._frozen_body.append(model.base_model)
    logp_BTV = found.double()(Segment(TOKENS, TOKENS))[0].log_probs()
    torch.testing.assert_close(logp_BTV, due, rtol=0, atol=1e-12)
    assert (logp_BTV - own(folder).double()(Segment(TOKENS, TOKENS))[0].log_probs()).abs().max() > 1e-3


def test_a_first_token_is_one_of_the_vocabulary(tmp_path):
    folder, _ = saved(tmp_path)
    for unknown in (-1, V):
        with pytest.raises(ValueError, match=f"first_token: expected an id from 0 to {V - 1}, got {unknown}"):
            HuggingFaceModel(V, model=folder, first_token=unknown)


@torch.no_grad()
def test_a_first_token_takes_one_of_the_positions(tmp_path):
    folder, _ = saved(tmp_path, "gpt2")  # of 64 positions
    for first_token, longest in ((None, 64), (5, 63)):
        model = HuggingFaceModel(V, model=folder, first_token=first_token)
        assert model.num_positions == longest
        assert model(torch.zeros(1, longest, dtype=torch.int64)).layers[-1].shape[1] == longest
        with pytest.raises(ValueError, match=f"^hf: the model has {longest} positions, the segment has {longest + 1}"):
            model(torch.zeros(1, longest + 1, dtype=torch.int64))


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt_neox"])
def test_parameters_are_counted_alike_frozen_planned_or_built(kind, tmp_path):
    folder, model = saved(tmp_path, kind)
    body = sum(each.numel() for each in model.base_model.parameters())
    head = 16 * V + V
    for frozen in (False, True):
        with on_meta():
            planned = own(folder, frozen=frozen)
        assert count_parameters(planned) == count_parameters(own(folder, frozen=frozen)) == (body + head, head)
    frozen = own(folder, frozen=True)
    assert {name for name, _ in frozen.named_parameters()} == {"head.output.weight", "head.output.bias"}
    assert set(frozen.state_dict()) == {"head.output.weight", "head.output.bias"}


def test_a_decoder_with_random_weights_is_one_line(tmp_path):
    config = {"model_type": "llama", **GROUPED}
    spec = ComponentSpec(name="hf", params={"config": config})
    first, again, other = (build(spec, ComponentSpec(name="softmax"), vocab_size=V, seed=seed) for seed in (1, 1, 2))
    assert all(map(torch.equal, first.state_dict().values(), again.state_dict().values()))
    assert not torch.equal(first.backbone.embedding.weight, other.backbone.embedding.weight)
    # by hand: V D, L (2 D^2 + 2 D 8 + 3 D 24 + 2 D), D, with D = 16, one head of 8 for keys and values
    assert count_parameters(first)[0] - count_parameters(first)[1] == 16 * V + 2 * (512 + 256 + 1152 + 32) + 16
    first.train()(Segment(TOKENS, TOKENS))[0].training_loss(TOKENS).backward()
    assert all(each.grad is not None and each.grad.any() for each in first.parameters())
    with pytest.raises(ValueError, match="'pretrained' needs a backbone with pretrained weights"):
        build(spec, OWN, vocab_size=V, seed=1)


def test_bfloat16_is_of_the_products_of_training(tmp_path):
    folder, _ = saved(tmp_path)
    wide, narrow = own(folder), own(folder, dtype="bfloat16")
    assert all(each.dtype == torch.float32 for each in narrow.parameters())
    assert torch.equal(
        wide.hidden(Segment(TOKENS, TOKENS)).layers[-1], narrow.hidden(Segment(TOKENS, TOKENS)).layers[-1]
    )
    trained = [each.train().hidden(Segment(TOKENS, TOKENS)).layers[-1] for each in (wide, narrow)]
    assert trained[1].dtype == torch.float32
    assert 1e-4 < ((trained[0] - trained[1]).norm() / trained[0].norm()).item() < 0.05


def test_an_untied_output_matrix_is_not_the_embedding(tmp_path):
    folder, model = saved(tmp_path)
    backbone = HuggingFaceModel(V, model=folder)
    assert torch.equal(backbone.output_layer.weight, model.lm_head.weight)
    assert not torch.equal(backbone.output_layer.weight, backbone.embedding.weight)
    with pytest.raises(ValueError, match=r"^tie_weights: the pretrained output matrix is not the input embedding"):
        build_head(
            ComponentSpec(name="softmax", params={"start": "pretrained", "tie_weights": True}), backbone, V, None
        )


def test_a_bias_and_a_cap_of_the_model_cannot_be_left_out(tmp_path):
    phi, gemma = (HuggingFaceModel(V, model=saved(tmp_path / kind, kind)[0]) for kind in ("phi", "gemma2"))
    with pytest.raises(ValueError, match=r"^bias: the pretrained output layer has one; set bias to true$"):
        build_head(with_own(bias=False), phi, V, None)
    logits = torch.tensor([-9.0, 0.5, 40.0])
    torch.testing.assert_close(build_head(OWN, gemma, V, None).phi(logits), 3 * (logits / 3).tanh())
    with pytest.raises(ValueError, match=r"^softcap: the pretrained output layer has 3; leave it out, got 5.0$"):
        build_head(with_own(softcap=5.0), gemma, V, None)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"model": "nowhere", "config": {"model_type": "llama"}}, "config: is for a model with random weights"),
        ({"config": {"model_type": "llama"}, "frozen": True}, "frozen: random weights have to be trained"),
        (
            {"config": {"model_type": "lama"}},
            "config: transformers knows no model_type 'lama', and",
        ),
        ({"config": {"model_type": "llama", "hiden_size": 8}}, "config: hiden_size is no setting of a llama"),
        ({"config": {"model_type": "llama", "vocab_size": 8}}, "config: vocab_size is no setting of a llama"),
        ({"config": {"model_type": "bert", **SHAPE, "num_hidden_layers": -1}}, "layers: the model has"),
        (
            {"config": {"model_type": "llama", **GROUPED}, "layers": (2,)},
            "layers: the model has 2, from -2 to 1",
        ),
        ({"model": "nowhere"}, "model: nowhere is no folder, nor a repository of the hub like 'owner/name'"),
        ({"model": "owner/name"}, "revision: the hub's owner/name needs the commit, 40 hexadecimal digits, got None"),
        ({"model": "owner/name", "revision": 40 * "0"}, f"model: owner/name at {7 * '0'} is not in"),
    ],
    ids=lambda value: "",
)
def test_parameters_that_make_no_model_are_one_sentence(params, sentence):
    with pytest.raises(ValueError) as found:
        HuggingFaceModel(V, **params)
    assert str(found.value).startswith(sentence)
    assert "\n" not in str(found.value)


LEFT_OVER = "left over tensor"  # of which transformers takes no notice
SAID = {  # of a folder that was damaged; of others that it cannot be read
    "no folder": "is no folder, nor a repository of the hub like 'owner/name'",
    "no config": "config.json does not exist",
    **dict.fromkeys(("no JSON", "deep JSON", "config is a list"), "cannot be read as a mapping in JSON"),
    "no weights": "holds no model.safetensors",
    "pickle": "a pickle, which can run code when it is read",
    "code": "transformers knows no model_type 'evil', and no code of a folder is executed",
    "index": "names files that are not in its folder",
}


def to_infinity(tensors):
    """bfloat16, with an infinite number in the output matrix."""
    for name, each in tensors.items():
        tensors[name] = each.bfloat16()
    tensors["lm_head.weight"][3, 5] = math.inf


HOSTILE = {
    **{name: (damage, SAID.get(name, "model: ")) for name, damage in DAMAGES.items() if name != LEFT_OVER},
    "other vocabulary": (
        lambda folder: change_config(folder, vocab_size=99),
        "vocabulary has 99 entries, the corpus 12",
    ),
    "quantized": (
        lambda folder: change_config(folder, quantization_config={"quant_method": "gptq", "bits": 4}),
        "quantization_config needs code of another package",
    ),
    "kernel of the hub": (
        lambda folder: change_config(folder, _attn_implementation="kernels-community/flash-attn"),
        "_attn_implementation needs code of another package",
    ),
    "adapter": (
        lambda folder: [(folder / f"adapter_{each}").write_text("{}") for each in ("config.json", "model.safetensors")],
        "adapter_config.json, weights that are not its own; merge them into a model first, or if they are merged",
    ),
    "NaN": (
        lambda folder: change_tensors(folder, lambda tensors: tensors["model.norm.weight"].fill_(math.nan)),
        "model.safetensors: model.norm.weight has 16 numbers that are not finite, so the model computes nothing",
    ),
    "one infinite number in bfloat16": (
        lambda folder: change_tensors(folder, to_infinity),
        "model.safetensors: lm_head.weight has 1 number that is not finite, so the model computes nothing",
    ),
    "other rows than config.json": (
        lambda folder: change_tensors(
            folder, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(V + 1, 16)})
        ),
        f"lm_head.weight is ({V + 1}, 16) in the safetensors of",
    ),
    "wrong shapes": (lambda folder: change_config(folder, hidden_size=32), "model: "),
    "huge shapes": (lambda folder: change_config(folder, intermediate_size=10**9), "model: "),
    "missing tensor": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.pop("model.norm.weight")),
        "do not hold model.norm.weight, which transformers would fill at random",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
def test_a_hostile_folder_is_one_sentence_and_nothing_is_executed(what, frozen, tmp_path):
    folder, _ = saved(tmp_path)
    damage, sentence = HOSTILE[what]
    damage(folder)
    with pytest.raises(ValueError) as found:
        HuggingFaceModel(V, model=folder, frozen=frozen)(TOKENS)
    assert sentence in str(found.value)
    assert "\n" not in str(found.value)
    assert not (folder / "ran").exists()


def test_a_model_whose_logits_are_not_those_of_its_output_matrix_is_refused(tmp_path, monkeypatch):
    folder, model = saved(tmp_path)
    forward = type(model).forward

    def doubled(self, *args, **kwargs):
        found = forward(self, *args, **kwargs)
        found.logits = 2 * found.logits
        return found

    monkeypatch.setattr(type(model), "forward", doubled)
    with pytest.raises(ValueError, match="the logits of this llama are not its output matrix times its top state"):
        HuggingFaceModel(V, model=folder)


def test_a_folder_is_known_by_its_content(tmp_path):
    folder, _ = saved(tmp_path / "one")
    content = HuggingFaceModel.content(model=folder)
    shutil.copytree(folder, tmp_path / "two")
    assert HuggingFaceModel.content(model=tmp_path / "two") == content
    assert HuggingFaceModel.content(model=folder, weights="random") != content
    change_config(tmp_path / "two", rms_norm_eps=1e-3)
    assert HuggingFaceModel.content(model=tmp_path / "two") != content
    assert HuggingFaceModel.content(config={"model_type": "llama"}) is None
    assert HuggingFaceModel.content(model=Path("owner/name"), revision=40 * "1") == f"owner/name@{40 * '1'}"


def tied_llama(folder):
    return saved(folder, tie_word_embeddings=True)[0]


def other_output(tensors):
    tensors["lm_head.weight"] = torch.randn(V, 16, generator=torch.Generator().manual_seed(9))


def in_shards(folder):
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    index = {name: f"model-{n % 2}.safetensors" for n, name in enumerate(names)}
    for file in set(index.values()):
        save_file({name: tensors[name] for name in names if index[name] == file}, folder / file, {"format": "pt"})
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def tensors_with(change):
    return lambda folder: change_tensors(folder, change)


FOLDERS = {  # what a folder holds -> how it is made of one, and the note on it
    "tied": (tied_llama, lambda folder: None, None),
    "tied by config.json, another output matrix": (
        tied_llama,
        tensors_with(other_output),
        "config.json ties the output matrix to the embedding, but the files hold another output matrix",
    ),
    "tied, and the same output matrix": (
        tied_llama,
        tensors_with(lambda each: each.update({"lm_head.weight": each["model.embed_tokens.weight"].clone()})),
        None,
    ),
    "tied, and the output matrix alone": (
        tied_llama,
        tensors_with(lambda each: each.update({"lm_head.weight": each.pop("model.embed_tokens.weight")})),
        None,
    ),
    "a value head": (
        lambda folder: saved(folder)[0],
        tensors_with(lambda each: each.update({"v_head.summary.weight": torch.full((1, 16), math.inf)})),
        "the files hold 1 tensor that the model does not use: v_head.summary.weight",
    ),
    "several tensors of others": (
        lambda folder: saved(folder)[0],
        tensors_with(lambda each: each.update({f"lora_{n}": torch.zeros(2) for n in range(5)})),
        "the files hold 5 tensors that the model does not use: lora_0, lora_1, lora_2 and 2 more",
    ),
    "adapter_config.json of a merged adapter": (
        lambda folder: saved(folder)[0],
        lambda folder: (folder / "adapter_config.json").write_text("{}"),
        "adapter_config.json is not used",
    ),
    "shards in float16": (
        lambda folder: saved(folder)[0],
        lambda folder: [
            change_tensors(folder, lambda each: each.update({name: of.half() for name, of in each.items()})),
            in_shards(folder),
        ],
        None,
    ),
    "an output layer with a bias": (lambda folder: saved(folder, "phi")[0], lambda folder: None, None),
    "another output matrix under a cap": (
        lambda folder: saved(folder, "gemma2")[0],
        tensors_with(other_output),
        "config.json ties the output matrix to the embedding",
    ),
}


@pytest.mark.parametrize("what", FOLDERS)
@torch.no_grad()
def test_a_folder_is_what_transformers_loads_from_it(what, tmp_path):
    make, change, note = FOLDERS[what]
    change(folder := make(tmp_path / "model"))
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    due = theirs(TOKENS, use_cache=False).logits.log_softmax(-1)
    for frozen in (False, True):
        found = own(folder, frozen=frozen)(Segment(TOKENS, TOKENS))[0].log_probs()
        torch.testing.assert_close(found, due, rtol=0, atol=2e-5)
        with on_meta():
            notes = HuggingFaceModel(V, model=folder, frozen=frozen).notes
        assert len(notes) == (note is not None)
        assert note is None or note in notes[0]


def test_an_output_matrix_that_is_not_the_loaded_ones_is_refused(tmp_path, monkeypatch):
    folder, _ = saved(tmp_path)
    read = hf._read_ends

    def other(*args):
        layer, embedding = read(*args)
        return dataclasses.replace(layer, weight=layer.weight + 0.1), embedding

    monkeypatch.setattr(hf, "_read_ends", other)
    with pytest.raises(ValueError, match="are not its output matrix times its top state"):
        HuggingFaceModel(V, model=folder, frozen=True)(TOKENS)


def test_warnings_of_transformers_about_weights_are_shown(tmp_path, caplog):
    change_tensors(folder := tied_llama(tmp_path), other_output)
    with caplog.at_level(logging.WARNING, logger="transformers"):
        HuggingFaceModel(V, model=folder)
    assert "we will NOT tie them" in caplog.text
