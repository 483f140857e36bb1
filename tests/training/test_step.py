"""The eager step: the z-loss, what a device cannot do, states that a model has kept; an update in parts.

Its state, its loss and its epochs are compared with a loop in test_loop.py, its precision in tests/trial/test_run.py.
Parts are resumed in tests/trial/test_resume.py.
"""

from contextlib import nullcontext

import pytest
import rounding
import torch
from causal_models import V as V_SAVED
from causal_models import saved
from small import Bare, bigram
from torch import nn

from harness.corpora.batching import Segment, training_segments
from harness.distributions import Logits, Mixture
from harness.errors import ExecutionError
from harness.model import LanguageModel, build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.protocols import Hidden
from harness.training.clocks import Clock
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep, refuse_unfit, refuse_z_loss, train_epoch

SETTINGS = {"optimizer": "sgd", "lr": 0.5, "epochs": 1, "batch_size": 2, "seq_len": 3}
TOKENS = torch.tensor([[0, 1, 2], [1, 2, 0]])


def test_a_z_loss_is_in_the_loss_and_in_the_update():
    model = bigram(torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [-1.0, 3.0, 1.0]]))
    train, weight = TrainSpec(**SETTINGS, z_loss=0.5, accumulation=2), model.backbone.embedding.weight
    step = EagerStep(model, torch.optim.SGD(model.parameters(), lr=0.5), train)
    rows = weight.detach().double().requires_grad_()
    log_z = [torch.log(sum(torch.exp(z) for z in rows[x])) for x in TOKENS.flatten()]
    loss = sum(lz - rows[x, x] + 0.5 * lz**2 for lz, x in zip(log_z, TOKENS.flatten(), strict=True)) / 6
    (gradient,) = torch.autograd.grad(loss, rows)
    step.begin_epoch()
    step(Segment(TOKENS, TOKENS))
    assert step.loss_sum.item() == pytest.approx(6 * loss.item(), rel=1e-6)
    torch.testing.assert_close(weight.double(), rows - 0.5 * gradient, rtol=0, atol=1e-6)  # lr 0.5


def test_a_distribution_that_takes_no_z_loss_is_a_sentence_before_training():
    refuse_z_loss(bigram(torch.eye(3)))
    with pytest.raises(ExecutionError, match=r"train\.z_loss: head returns a Plain, which has no attribute z_loss"):
        refuse_z_loss(bigram(torch.eye(3), Bare()))


class OwnLoss(Mixture):
    """A plug-in's distribution with a training loss of its own; `with_z`: which has the z-loss."""

    with_z = False

    def training_loss(self, targets_BT, weight_BT=None):
        loss = self.mean_nll(targets_BT) + torch.rand(())  # it draws, as NCE does
        return loss + self.z_term() if self.with_z else loss


@pytest.mark.parametrize("with_z", [False, True])
def test_a_training_loss_that_ignores_the_z_loss_is_a_sentence_before_training(with_z, monkeypatch):
    monkeypatch.setattr(OwnLoss, "with_z", with_z)
    head = nn.Module()
    head.forward = lambda hidden: OwnLoss(torch.ones(1, 2, 1, 3), None, torch.eye(3))
    model, before = bigram(torch.eye(3), head), torch.get_rng_state()
    told = r"train\.z_loss: head returns a OwnLoss, whose training_loss ignores z_loss .*; add the term, or leave"
    with nullcontext() if with_z else pytest.raises(ExecutionError, match=told):
        refuse_z_loss(model)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("changes", "devices", "message"),
    [
        ({"precision": "tf32"}, {"cpu"}, "train.precision is tf32, which only a GPU has"),
        pytest.param(
            *({"cuda_graph": "on"}, {"cpu"}, "train.cuda_graph is on, but the trials run on the CPU"),
            marks=pytest.mark.needs("gpu"),
        ),
        ({"cuda_graph": "on", "data_parallel": 2}, {"cpu", "cuda"}, "cuda_graph is on, and the steps of 2 workers are"),
        ({"cuda_graph": "auto", "data_parallel": 2}, {}, ""),
    ],
)
def test_what_a_device_or_several_workers_cannot_do_is_refused(changes, devices, message):
    for device in ("cpu", "cuda"):
        with pytest.raises(ExecutionError, match=message) if device in devices else nullcontext():
            refuse_unfit(TrainSpec(**{**SETTINGS, **changes}), device)


class KeptStates(LanguageModel):
    """A model whose states were computed before, for every token of a split."""

    def hidden(self, segment, state=None):
        return Hidden((self.kept_NE[segment.place - 1],))  # a target's state is that of the token before it


def test_a_model_that_has_kept_its_states_trains_its_head_as_one_that_computes_them():
    tokens_N, table = torch.randint(5, (40,), generator=torch.Generator().manual_seed(1)), nn.Embedding(5, 4)
    table.requires_grad_(False)
    segments = training_segments(tokens_N, batch_size=2, seq_len=5, batching="blocks")
    found = []
    for kind in (LanguageModel, KeptStates):
        torch.manual_seed(2)
        backbone, head = nn.Module(), nn.Linear(4, 5)
        backbone.embedding, backbone.forward = table, lambda tokens, state: Hidden((table(tokens),))
        readout = nn.Module()
        readout.output, readout.forward = head, lambda hidden, head=head: Logits(head(hidden.layers[-1]))
        model = kind(backbone, readout)
        model.kept_NE = table(tokens_N)
        step = EagerStep(model, torch.optim.SGD(head.parameters(), lr=0.5), TrainSpec(**{**SETTINGS, "shuffle": True}))
        order = torch.Generator().manual_seed(3)
        train_epoch(step, segments.shuffled(order), Clock(torch.device("cpu")), epoch=1, seed=1)
        found.append(head.weight)
    assert torch.equal(*found)


V = 11
COLUMNS = torch.randint(V, (120,), generator=torch.Generator().manual_seed(0))  # 6 columns of 20: 7 + 7 + 5 targets
ATTENTION = {"d_model": 6, "num_layers": 3, "num_heads": 2, "d_ff": 5, "dropout": 0.0, "layer_dropout": 0.0}
BACKBONES = {"lstm": {"d_model": 6, "num_layers": 2, "dropout": 0.0}, "transformer_encoder": ATTENTION}
HEADS = {
    "softmax": {},
    "mos": {"num_mixtures": 3},
    "mfs": {"num_partitions": 2, "window": 1},
    "doc": {"components": {"top": 2, "second": 1}, "balance": 0.5},
    "nce": {"num_noise": 5, "log_normaliser": 2.0},
}


def step_of(backbone: str, head: str, parts: int, dtype=torch.float64) -> EagerStep:
    settings = {"optimizer": "sgd", "lr": 0.5, "epochs": 1, "batch_size": 6, "seq_len": 7, "clip": 0.2}
    train = TrainSpec(accumulation=parts, **settings)
    specs = [ComponentSpec(name=name, params=known[name]) for name, known in ((backbone, BACKBONES), (head, HEADS))]
    model = build(*specs, vocab_size=V, seed=1, token_counts=torch.ones(V)).to(dtype)
    return EagerStep(model, make_optimizer(model, train), train)


def trained(step: EagerStep) -> EagerStep:
    """After an epoch, from the same noise."""
    torch.manual_seed(5)
    step.begin_epoch()
    for segment in training_segments(COLUMNS, batch_size=6, seq_len=7):
        step(segment)
    return step


def apart(one: EagerStep, other: EagerStep) -> float:
    return max((a - b).abs().max().item() for a, b in zip(one.parameters, other.parameters, strict=True))


@pytest.mark.parametrize(
    ("backbone", "head", "parts", "dtype", "atol"),
    [
        ("lstm", "softmax", 2, torch.float64, 1e-12),
        ("lstm", "mos", 3, torch.float64, 1e-12),
        ("lstm", "mos", 6, torch.float32, 2e-6),
        ("transformer_encoder", "mfs", 6, torch.float64, 1e-12),
        ("transformer_encoder", "softmax", 6, torch.float32, 2e-6),
    ],
    ids=str,
)
def test_parts_make_the_clipped_update_the_loss_and_the_state_of_the_undivided_batch(
    backbone, head, parts, dtype, atol
):
    whole, divided = (trained(step_of(backbone, head, number, dtype)) for number in (1, parts))
    assert apart(divided, whole) <= atol
    assert apart(whole, step_of(backbone, head, 1, dtype)) > 0.01
    assert divided.loss_sum.item() == pytest.approx(
        whole.loss_sum.item(), rel=1e-6 if dtype == torch.float32 else rounding.bound(len(COLUMNS))
    )
    if backbone == "transformer_encoder":
        assert divided.state_dict()["carried"] is None


@pytest.mark.parametrize("head", ["doc", "nce"])
def test_losses_that_couple_rows_are_of_each_part_by_itself(head):
    whole, divided = (trained(step_of("transformer_encoder", head, parts)) for parts in (1, 3))
    assert apart(divided, whole) > 1e-5


GROUPS = {"head": {"lr": "x0.5"}, "embedding": {"lr": 0.03}, "vectors": {"lr": "x2", "weight_decay": 0.0}}
PARTS, RATE, CLIP, EPS = 3, 0.02, 0.2, 1e-2


@pytest.mark.needs("pretrained")
def test_parts_groups_and_muon_make_the_steps_of_a_loop_of_torch(tmp_path):
    folder, theirs = saved(tmp_path)
    settings = {"optimizer": "muon", "lr": RATE, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": EPS, "clip": CLIP}
    train = TrainSpec(**settings, epochs=1, batch_size=6, seq_len=7, accumulation=PARTS, groups=GROUPS)
    head = ComponentSpec(name="softmax", params={"start": "pretrained", "bias": False})
    ours = build(ComponentSpec(name="hf", params={"model": folder}), head, vocab_size=V_SAVED, seed=1).double()
    step = EagerStep(ours, make_optimizer(ours, train), train)
    theirs = theirs.double().train()
    embedding, output = theirs.model.embed_tokens.weight, theirs.lm_head.weight
    vectors = [each for each in theirs.parameters() if each.dim() < 2]
    apart = {id(each) for each in (embedding, output, *vectors)}
    matrices = [each for each in theirs.parameters() if id(each) not in apart]
    of_adamw = [
        {"params": [embedding], "lr": 0.03},
        {"params": [output], "lr": 0.5 * RATE},
        {"params": vectors, "lr": 2 * RATE, "weight_decay": 0.0},
    ]
    muon = torch.optim.Muon(matrices, RATE, 0.1, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(of_adamw, RATE, betas=(0.8, 0.95), eps=EPS, weight_decay=0.1)
    segments = training_segments(COLUMNS, batch_size=6, seq_len=7)
    step.begin_epoch()
    # a gradient of at most CLIP, which is off by rounding, moves a weight by at most RATE / EPS times as much; Muon
    # rounds its gradients to bfloat16, to the same ones
    atol = len(segments) * 2 * RATE / EPS * rounding.bound(1000, CLIP)
    for segment in segments:
        step(segment)
        muon.zero_grad()
        adamw.zero_grad()
        for tokens, targets in zip(segment.inputs.chunk(PARTS), segment.targets.chunk(PARTS), strict=True):
            logits = theirs(input_ids=tokens, use_cache=False).logits
            nats = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
            (nats / segment.targets.numel()).backward()
        assert nn.utils.clip_grad_norm_(theirs.parameters(), CLIP) > 2 * CLIP
        muon.step()
        adamw.step()
        after = {name.removeprefix("model."): each for name, each in theirs.named_parameters()}
        for name, each in ours.backbone.body.named_parameters():
            torch.testing.assert_close(each, after.pop(name), rtol=0, atol=atol)
        torch.testing.assert_close(ours.head.output.weight, after.pop("lm_head.weight"), rtol=0, atol=atol)
        assert after == {}
    assert (ours.head.output.weight - saved(tmp_path)[1].lm_head.weight).abs().max() > 0.01
