"""FLOPs of a training token: by hand from the sizes of models, and against torch's counter on a real training step."""

from pathlib import Path

import pytest
import torch
from head_table import rows, total
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from harness import kernels
from harness.corpora.batching import Segment
from harness.flops import training_flops
from harness.model import LanguageModel, build_backbone, build_head
from harness.plan.components import Component, Construction
from harness.plan.reader import Problems, Source
from harness.plan.specs import ComponentSpec
from harness.registry import BACKBONES, HEADS

LLAMA = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def spec(name, **params):
    return ComponentSpec(name=name, params=params)


SOFTMAX = spec("softmax")


def test_gpt2_small():
    # 12 layers of 12 d^2 weights (attention 4 d^2, feed-forward 8 d^2) and 12 T d of attention; V d of the head
    layers, d, T, V = 12, 768, 1024, 50_257
    found = training_flops(spec("gpt2"), SOFTMAX, V, 1, T)
    assert found.body == 6 * layers * 12 * d**2 + 12 * layers * T * d
    assert found.head == 6 * V * d
    assert found.total == found.body + found.head


@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3)])
def test_recurrent_layers(cell, gates):
    # each layer: `gates` matrices d x d of the input, and as many of the state
    found = training_flops(spec(cell, d_model=30, num_layers=2), SOFTMAX, 100, 3, 7)
    assert found.body == 6 * 2 * gates * 2 * 30**2
    assert found.head == 6 * 100 * 30


def test_a_bidirectional_model_is_trained_twice():
    once = training_flops(spec("lstm", d_model=30), SOFTMAX, 100, 3, 7)
    twice = training_flops(spec("bilstm", d_model=30), SOFTMAX, 100, 3, 7)
    assert (twice.body, twice.head) == (2 * once.body, 2 * once.head)


@pytest.mark.parametrize(("name", "params", "products"), rows("flops"), ids=str)
def test_products_of_a_head_are_counted_until_its_losses_have_faded(name, params, products):
    found = training_flops(spec("lstm", d_model=30), spec(name, **params), 100, 2, 5)
    assert found.head == pytest.approx(float(6 * total(products, V=100, d=30)), rel=1e-12)
    assert found.body == training_flops(spec("lstm", d_model=30), SOFTMAX, 100, 2, 5).body


def test_noise_words_are_shared_by_a_batch():
    d, k = 30, 20
    for batch, tokens in ((1, 4), (3, 5)):
        found = training_flops(spec("lstm", d_model=d), spec("nce", num_noise=k), 100, batch, tokens)
        assert found.head == 6 * k * d


@pytest.mark.parametrize("head", [spec(name) for name in sorted({"moc", *(row[0] for row in rows("flops"))})], ids=str)
@pytest.mark.parametrize(
    "backbone",
    [
        spec("transformer_encoder", d_model=16, num_layers=2, num_heads=2, d_ff=24),
        pytest.param(
            spec(
                "hf",
                config={"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
                layers=(0, 1),
            ),
            marks=pytest.mark.needs("pretrained"),
        ),
    ],
    ids=str,
)
def test_a_real_training_step_has_as_many(backbone, head):
    V, batch, tokens = 50, 2, 6
    body = build_backbone(backbone, V)
    model = LanguageModel(body, build_head(head, body, V, token_bytes=(b"-",) * V))
    ids = torch.arange(batch * tokens).view(batch, tokens) % V
    with sdpa_kernel(SDPBackend.MATH), kernels.reference_only(), FlopCounterMode(display=False) as counter:
        distribution, _ = model(Segment(ids, ids))
        distribution.training_loss(ids).backward()
    found = training_flops(backbone, head, V, batch, tokens)
    assert found.total * batch * tokens == pytest.approx(counter.get_total_flops(), rel=1e-12)


def test_a_body_that_is_known_is_counted_again_only_under_a_hook_on_the_embedding():
    lstm = spec("lstm", d_model=30, num_layers=1)
    hooked = spec("softmax", tie_weights=True, input_gradient_scale=0.5)
    assert training_flops(lstm, SOFTMAX, 100, 2, 5, body=1.0).body == 1.0
    assert training_flops(lstm, hooked, 100, 2, 5, body=1.0).body == 6 * 4 * 2 * 30**2  # one layer of four gates


def test_products_that_depend_on_the_words_are_not_known():
    with pytest.raises(ValueError, match="FLOPs of adaptive on lstm are not known from shapes"):
        training_flops(spec("lstm", d_model=30), spec("adaptive"), 100, 2, 5)


def test_no_random_number_is_drawn():
    before = torch.get_rng_state()
    training_flops(spec("lstm", dropout=0.5), spec("mos", num_mixtures=2, dropout=0.5), 100, 2, 5)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_head_that_cannot_be_built_without_content_is_trained_all_the_same(monkeypatch):
    class FromCounts(HEADS.get("softmax")):
        def __init__(self, dims, embedding):
            super().__init__(dims, embedding)
            if dims.token_counts is not None:
                self.start = self.output.bias + dims.token_counts.log()  # two devices, where FLOPs are counted

    monkeypatch.setitem(HEADS._classes, "from_counts", FromCounts)
    with pytest.raises(ValueError, match="FLOPs of from_counts on lstm are not known from shapes: "):
        training_flops(spec("lstm", d_model=200), spec("from_counts"), 100, 2, 5)


def test_a_head_that_changes_what_the_body_computes_changes_no_other_head_of_a_plan(monkeypatch):
    class Hooked(HEADS.get("softmax")):
        def __init__(self, dims, embedding, *, factor: float = 2.0):
            super().__init__(dims, embedding)
            square = torch.eye(embedding.embedding_dim)
            embedding.register_forward_hook(lambda module, given, found: factor * found @ square.to(found))
            embedding.changed_by = "factor"

    monkeypatch.setitem(HEADS._classes, "hooked", Hooked)
    lstm, hooked = spec("lstm", d_model=30, num_layers=1), spec("hooked", factor=2.0)
    construction = Construction(Problems(Source(Path("suite.yaml"))), batch=(2, 5))
    heads = [Component(each, HEADS.get(each.name)) for each in (hooked, SOFTMAX)]
    construction.check([100], [Component(lstm, BACKBONES.get("lstm"))], heads)
    of_lstm = 6 * 4 * 2 * 30**2  # one layer of four gates
    assert {head: flops.body for (_, _, head), flops in construction.flops.items()} == {
        "hooked(factor=2.0)": of_lstm + 6 * 30**2,
        "softmax": of_lstm,
    }
