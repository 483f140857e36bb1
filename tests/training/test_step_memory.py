"""The planned memory of a training step, by formulas and by hand."""

import json

import pytest
import torch
from handmade import count
from torch import nn

from harness.distributions import Logits, Mixture
from harness.model import build
from harness.plan.specs import AveragingSpec, ComponentSpec, FinetuneSpec, TrainSpec
from harness.protocols import Hidden
from harness.registry import BACKBONES, HEADS
from harness.training.step_memory import plan_step

pytestmark = pytest.mark.system

CPU = torch.device("cpu")
B, T, V, D = 4, 16, 300, 32
TRAIN = TrainSpec(optimizer="sgd", lr=0.1, epochs=1, batch_size=B, seq_len=T)
SMALL = {
    "lstm": {"d_model": 16, "num_layers": 3},
    "gru": {"d_model": 16, "num_layers": 3},
    "transformer_encoder": {"d_model": 16, "num_layers": 3, "num_heads": 2, "d_ff": 16},
    "gpt2": {"d_model": 16, "num_layers": 3, "num_heads": 2},
    "looked": {},
}


def planned(head, backbone="transformer_encoder", params=None, vocab_size=V, head_params=None, **changes):
    body = ComponentSpec(name=backbone, params=params or SMALL[backbone])
    top = ComponentSpec(name=head, params=head_params or {})
    return plan_step(body, top, TRAIN.model_copy(update=changes), vocab_size=vocab_size, device=CPU)


class Looked(nn.Module):
    """A backbone that is an embedding alone."""

    layer_dims = (D,)

    def __init__(self, vocab_size: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, D)

    def forward(self, tokens_BT, state=None):
        return Hidden((self.embedding(tokens_BT),))


class Plain(nn.Module):
    """A head that builds all logits."""

    def __init__(self, dims, embedding):
        super().__init__()
        self.output = nn.Linear(dims.d_embed, dims.vocab_size, bias=False)

    def forward(self, hidden):
        return Logits(self.output(hidden.layers[-1]))


class Curious(Plain):
    """A head whose shapes depend on what tensors hold."""

    def forward(self, hidden):
        kept = hidden.layers[-1].flatten().unique()
        return Logits(super().forward(hidden).z_BTV + kept.sum())


@pytest.fixture
def own(monkeypatch):
    """The components above, by names."""
    for registry, name, cls in ((BACKBONES, "looked", Looked), (HEADS, "plain", Plain), (HEADS, "curious", Curious)):
        registry.names()
        monkeypatch.setitem(registry._classes, name, cls)


def test_a_head_of_logits_on_an_embedding_by_hand(own):
    # Going back through log_softmax: its output, its gradient from the gather, its own gradient are alive, N V each;
    # the logits are not. Beside them h (N, D), saved for dW, and what is N numbers large: ids, targets, losses.
    memory = planned("plain", "looked", vocab_size=3000)
    N, vocab = B * T, 3000
    assert memory.weights == pytest.approx(4 * 2 * vocab * D, rel=1e-3)
    assert memory.backbone == 4 * N * D
    assert memory.optimizer == 0
    assert memory.total == pytest.approx(4 * (2 * vocab * D + N * D + 3 * N * vocab), rel=0.005)


@pytest.mark.parametrize(
    ("changes", "copies"),
    [
        ({}, 0),
        ({"momentum": 0.9}, 1),
        ({"averaging": AveragingSpec(after=0)}, 1),
        ({"momentum": 0.9, "finetune": FinetuneSpec(epochs=3)}, 2),
        ({"optimizer": "adam"}, 2),
        ({"optimizer": "adamw", "clip": 0.5}, 2),
        ({"optimizer": "adamw_huggingface"}, 2),
    ],
)
def test_weights_and_optimizer_by_formula(changes, copies):
    memory = planned("softmax", "gpt2", **changes)
    model = build(ComponentSpec(name="gpt2", params=SMALL["gpt2"]), ComponentSpec(name="softmax"), vocab_size=V, seed=1)
    assert memory.weights == pytest.approx(4 * count(model), rel=0.001)
    assert memory.optimizer == pytest.approx(4 * copies * count(model), rel=0.01)  # and Adam's counts of steps


def test_a_tied_matrix_is_counted_once():
    memory = planned("softmax", "lstm", head_params={"tie_weights": True})
    assert memory.weights == pytest.approx(4 * (V * 16 + 3 * (8 * 16 * 16 + 8 * 16) + V), rel=0.001)


def test_the_lean_loss_is_counted_by_its_buffers_not_by_all_logits():
    # 15 components of 64 tokens: all logits of 20,000 words would be 77 MB; 512 rows are 34 tokens, so two chunks of 32
    memory = planned("mos", head_params={"num_mixtures": 15}, vocab_size=20_000)
    chunk, matrix = 32 * 15 * 20_000 * 4, 20_000 * 24 * 4
    assert chunk + matrix < memory.head < 1.2 * (chunk + matrix)


@pytest.mark.parametrize("backbone", ["lstm", "gru", "gpt2", "transformer_encoder"])
def test_what_a_backbone_keeps_grows_with_the_rows(backbone):
    one, two, parts, workers = (
        planned("softmax", backbone, **changes)
        for changes in ({}, {"batch_size": 2 * B}, {"batch_size": 2 * B, "accumulation": 2}, {"data_parallel": 2})
    )
    assert two.backbone == pytest.approx(2 * one.backbone, rel=0.02)
    assert parts.backbone == pytest.approx(one.backbone, rel=0.05)  # and the carried state of the first part
    assert parts.gradients == pytest.approx(one.weights, rel=0.01)  # of the first part, while the second runs
    assert workers.backbone == pytest.approx(one.backbone / 2, rel=0.05)


@pytest.mark.parametrize("name", sorted(HEADS.names()))
def test_every_head_has_a_plan(name):
    memory = planned(name, "transformer_encoder", optimizer="adam", precision="bf16")
    matrices = 1 if name == "adaptive" else 2  # of V x 16 floats; most rows of its matrices are narrow
    assert memory.weights > 4 * matrices * V * 16
    assert memory.optimizer >= 2 * 4 * matrices * V * 16
    assert memory.total > memory.weights + memory.optimizer + memory.backbone


def test_planning_allocates_nothing():
    # weights of 128 GB, which with gradients no machine of ours has
    memory = planned("softmax", params={"d_model": 8192, "num_layers": 1, "d_ff": 8}, vocab_size=2_000_000)
    assert memory.weights > 2 * 2_000_000 * 8192 * 4


def test_after_planning_tensors_have_content_again():
    before = torch._C._get_mkldnn_enabled()
    planned("mfs")
    torch.manual_seed(0)
    mixture = Mixture(
        torch.randn(1, 5, 6, 8), torch.zeros(1, 5, 3).log_softmax(-1), torch.randn(V, 8), partitions=(4, 1, 1)
    )
    targets = torch.tensor([[0, 1, 2, 3, 299]])
    expected = -mixture.log_probs().gather(-1, targets[..., None]).squeeze(-1)
    torch.testing.assert_close(mixture.nll(targets), expected)
    assert torch._C._get_mkldnn_enabled() == before


def test_the_command_prints_bytes_or_says_which_head_asks_for_content(own, harness, tiny_suite):
    with pytest.raises(ValueError, match=r"curious on looked: .*unique"):
        planned("curious", "looked")
    tiny_suite.write_text(tiny_suite.read_text().replace("  - softmax\n", "  - softmax\n  - curious\n"))
    done = harness("plan", tiny_suite, "--memory", "--json")
    trials = json.loads(done.out)["trials"]
    plans = {trial["head"]["name"]: trial["memory"] for trial in trials}
    assert plans["curious"] is None
    assert "warning: the memory of a training step cannot be computed: curious on lstm" in done.err
    parts = dict(plans["softmax"])
    assert parts.pop("total") == sum(parts.values())
    assert list(parts) == ["weights", "gradients", "optimizer", "backbone", "head"]
    table = harness("plan", tiny_suite, "--memory").out
    assert "memory of a training step at its peak, MiB, cpu" in table
    assert "on top: about 400 MiB for the process of each trial" in table
