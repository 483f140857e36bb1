"""Untying: tied before a share of training, a matrix of its own after it, against plain loops of training."""

import oracles
import pytest
import torch
from small_heads import E, V, make, states
from torch import nn

from harness.corpora.batching import Segment
from harness.model import LanguageModel, build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.protocols import HeadDims, Hidden, followers
from harness.registry import HEADS
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep

TARGETS = torch.tensor([[0, 4, 10], [2, 2, 1]])
TRAIN = {"epochs": 1, "batch_size": 2, "seq_len": 3}
ADAMW = {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1, "clip": 0.5}
STEPS = 8


class LookedUp(nn.Module):
    """A backbone whose states are the rows of its embedding."""

    def __init__(self):
        super().__init__()
        self.embedding, self.layer_dims = nn.Embedding(V, E), (E,)

    def forward(self, tokens, state=None):
        return Hidden((self.embedding(tokens),))


def looked_up(**params) -> LanguageModel:
    torch.manual_seed(3)
    backbone = LookedUp()
    head = HEADS.get("untying")(HeadDims(vocab_size=V, layer_dims=(E,), d_embed=E), backbone.embedding, **params)
    return LanguageModel(backbone, head).double()


def segment(number: int) -> Segment:
    ids = torch.randint(V, (2, 4), generator=torch.Generator().manual_seed(number))
    return Segment(ids[:, :-1], ids[:, 1:])


def stepped(model: LanguageModel, **train):
    """Yields the number of a step that was made, with the step."""
    settings = TrainSpec(**TRAIN, **train)
    step = EagerStep(model, make_optimizer(model, settings), settings)
    step.begin_epoch()
    for number in range(STEPS):
        for module in followers(model.head):
            module.progress.fill_(number / STEPS)
        step(segment(number))
        yield number, step


@pytest.mark.parametrize(
    ("share", "first", "decay"), [(0.0, 0, 0.1), (0.375, 3, 0.0), (0.375, 3, 0.1), (0.4, 4, 0.1), (0.9, 8, 0.1)]
)
def test_training_is_that_of_a_loop_of_sgd(share, first, decay):
    model = looked_up(share=share)
    emb, own, bias = model.backbone.embedding.weight, model.head.output.weight, model.head.output.bias
    M = {"Emb": emb.detach().clone(), "b": bias.detach().clone()}
    momentum = {name: 0.0 for name in ("Emb", "b", "W")}
    for number, _ in stepped(model, optimizer="sgd", lr=0.3, momentum=0.9, weight_decay=decay):
        if number == first:
            M["W"] = M["Emb"].clone()
        if number < first:  # torch's SGD adds the decay to the gradient: W, which is Emb before the step, has no other
            momentum["W"] = 0.9 * momentum["W"] + decay * M["Emb"]
        p = {name: each.detach().requires_grad_() for name, each in M.items()}
        losses = []
        for row, ahead in zip(*(each.tolist() for each in segment(number)[:2]), strict=True):
            for x, y in zip(row, ahead, strict=True):
                scores = [oracles.dot(word, p["Emb"][x]) for word in p.get("W", p["Emb"])]
                losses.append(-oracles.log_softmax([z + b for z, b in zip(scores, p["b"], strict=True)])[y])
        for name, gradient in zip(p, torch.autograd.grad(oracles.mean(losses), p.values()), strict=True):
            momentum[name] = 0.9 * momentum[name] + gradient + decay * M[name]
            M[name] = M[name] - 0.3 * momentum[name]
        torch.testing.assert_close(emb.detach(), M["Emb"], rtol=0, atol=1e-12)
        torch.testing.assert_close(bias.detach(), M["b"], rtol=0, atol=1e-12)
        if "W" in M:
            torch.testing.assert_close(own.detach(), M["W"], rtol=0, atol=1e-12)


LSTM = ComponentSpec(name="lstm", params={"d_model": E, "num_layers": 1, "dropout": 0.0})


def on_lstm(name: str, **params) -> LanguageModel:
    return build(LSTM, ComponentSpec(name=name, params=params), vocab_size=V, seed=1).double()


def test_before_the_share_training_is_that_of_tied_weights():
    more = {"projection": True, "init_range": 0.2, "init_bias": "uniform"}
    tied, ours = on_lstm("softmax", tie_weights=True, **more), on_lstm("untying", share=0.999, **more)
    pairs = zip(stepped(tied, **ADAMW), stepped(ours, **ADAMW), strict=True)
    for (_, one), (_, other) in pairs:
        assert one.loss_sum.item() == pytest.approx(other.loss_sum.item(), abs=1e-12)
        theirs, gradient = tied.backbone.embedding.weight, ours.backbone.embedding.weight.grad
        assert gradient.any()
        torch.testing.assert_close(gradient, theirs.grad, rtol=0, atol=1e-12)
        assert not ours.head.output.weight.grad.any()
        nll = [model.eval()(segment(99))[0].nll(segment(99).targets) for model in (tied, ours)]
        torch.testing.assert_close(*nll, rtol=0, atol=1e-12)
        for model in (tied, ours):
            model.train()


def test_a_second_pass_of_the_step_does_not_copy_again_and_evaluation_never_does():
    embedding = nn.Embedding(V, E).double()
    head = make("untying", embedding=embedding, share=0.5)
    start = embedding.weight.detach().clone()
    assert make("untying", dtype=None).progress.dtype == torch.float64  # float32 cannot show a step of a long training
    assert torch.equal(head.output.weight, start)
    assert head.output.weight.data_ptr() != embedding.weight.data_ptr()
    head.progress.fill_(0.5)
    with torch.no_grad():
        embedding.weight.add_(1.0)
        head.eval()(states())
        assert torch.equal(head.output.weight, start)
        head.train()(states())
        assert torch.equal(head.output.weight, start + 1)
        embedding.weight.add_(1.0)
        head(states())
    assert torch.equal(head.output.weight, start + 1)


def test_two_passes_before_one_backward_pass_have_the_gradient_of_both():
    head = make("untying", share=0.5).train()
    head.progress.fill_(0.5)
    both = head(states()).training_loss(TARGETS) + head(states()).training_loss(TARGETS)
    (twice,) = torch.autograd.grad(both, head.output.weight)
    (once,) = torch.autograd.grad(head(states()).training_loss(TARGETS), head.output.weight)
    torch.testing.assert_close(twice, 2 * once, rtol=0, atol=1e-12)


def test_an_embedding_that_is_not_trained_is_refused():
    embedding = nn.Embedding(V, E)
    embedding.weight.requires_grad_(False)
    with pytest.raises(ValueError, match="untying needs a backbone whose embedding is trained; it is frozen"):
        HEADS.get("untying")(HeadDims(vocab_size=V, layer_dims=(E,), d_embed=E), embedding)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.8, 0.95)], ids=str)
def test_the_first_step_of_adam_has_the_moments_of_none_and_the_number_of_all(betas):
    model = looked_up(share=0.5)
    own, t = model.head.output.weight, STEPS // 2 + 1
    beta1, beta2 = betas
    expected = (1 - beta1) / (1 - beta1**t) * ((1 - beta2**t) / (1 - beta2)) ** 0.5
    for number, _ in stepped(model, optimizer="adam", lr=0.01, betas=betas, eps=1e-12):
        if number == STEPS // 2 - 1:
            before = model.backbone.embedding.weight.detach().clone()
        if number == STEPS // 2:
            break
    learned = own.grad != 0
    assert learned.all()
    torch.testing.assert_close((own - before).abs(), torch.full((V, E), 0.01 * expected).double(), rtol=1e-6, atol=0)
