"""An update in parts (train.accumulation): that of the undivided batch. Resumed in tests/trial/test_resume.py."""

import pytest
import rounding
import torch

from harness.corpora.batching import Segment, training_segments
from harness.model import build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep

V = 11
TOKENS = torch.randint(V, (120,), generator=torch.Generator().manual_seed(0))  # 6 columns of 20: 7 + 7 + 5 targets
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
    for segment in training_segments(TOKENS, batch_size=6, seq_len=7):
        step(segment)
    return step


def apart(one: EagerStep, other: EagerStep) -> float:
    return max((a - b).abs().max().item() for a, b in zip(one.parameters, other.parameters, strict=True))


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 2e-6)], ids=str)
@pytest.mark.parametrize("parts", [2, 3, 6])
@pytest.mark.parametrize("head", ["softmax", "mos", "mfs"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_parts_make_the_update_and_the_loss_of_the_undivided_batch(backbone, head, parts, dtype, atol):
    whole, divided = (trained(step_of(backbone, head, number, dtype)) for number in (1, parts))
    assert apart(divided, whole) <= atol
    assert apart(whole, step_of(backbone, head, 1, dtype)) > 0.01
    assert divided.loss_sum.item() == pytest.approx(
        whole.loss_sum.item(), rel=1e-6 if dtype == torch.float32 else rounding.bound(len(TOKENS))
    )
    if backbone == "transformer_encoder":
        assert divided.state_dict()["carried"] is None


@pytest.mark.parametrize("head", ["doc", "nce"])
def test_losses_that_couple_rows_are_of_each_part_by_itself(head):
    whole, divided = (trained(step_of("transformer_encoder", head, parts)) for parts in (1, 3))
    assert apart(divided, whole) > 1e-5


def test_each_part_carries_its_rows_of_the_state():
    whole, divided = trained(step_of("lstm", "softmax", 1)), trained(step_of("lstm", "softmax", 3))
    parts, state = divided.state_dict()["carried"], whole.state_dict()["carried"]
    assert len(parts) == 3
    rows = lambda carried: [tensor for layer in carried for tensor in layer]  # noqa: E731
    for joined, expected in zip(zip(*map(rows, parts), strict=True), rows(state), strict=True):
        dim = next(d for d in range(expected.dim()) if joined[0].shape[d] != expected.shape[d])
        torch.testing.assert_close(torch.cat(joined, dim), expected, rtol=0, atol=1e-12)
        assert not expected.requires_grad


def test_the_gradient_is_clipped_once_by_its_whole_norm():
    # opposite gradients of two rows: each is large, their mean is nothing
    class Linear(torch.nn.Module):
        head_name = both_names = "head linear"

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def forward(self, segment, state):
            loss = self.weight * segment.inputs.double().mean()
            return type("Loss", (), {"training_loss": lambda self, targets: loss})(), None

        def from_the_right(self):
            return None

    train = TrainSpec(optimizer="sgd", lr=1.0, epochs=1, batch_size=2, seq_len=1, clip=1.0, accumulation=2)
    model = Linear()
    step = EagerStep(model, torch.optim.SGD(model.parameters(), lr=1.0), train)
    rows = torch.tensor([[7], [-6]])
    step(Segment(rows, rows))
    assert model.weight.item() == pytest.approx(-0.5)  # (7 - 6) / 2, within the clip; clipped apart it would be 0


def test_rows_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="a batch of 5 rows does not divide into 3 equal parts"):
        step_of("lstm", "softmax", 3)(Segment(TOKENS[:35].view(5, 7), TOKENS[:35].view(5, 7)))
