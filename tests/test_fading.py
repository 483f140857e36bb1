"""Factors that fall with the share of training that is done, and who says it."""

import handmade
import pytest
import torch
from small import TOKENS, V, model, spec, tokens
from torch import nn

from harness.corpora.corpus import Corpus
from harness.fading import Fade
from harness.plan.specs import ComponentSpec
from harness.protocols import followers

TWO_LAYERS = ComponentSpec(name="lstm", params={"d_model": 6, "num_layers": 2})
MTP = ComponentSpec(name="mtp", params={"further": (0.5, 0.25), "fade": ((0.25, 0.75), (0.0, 0.5))})


@pytest.mark.parametrize(
    ("start", "end", "done", "factor"),
    [
        *((0.25, 0.75, 0.0, 1), (0.25, 0.75, 0.25, 1), (0.25, 0.75, 0.375, 0.75), (0.25, 0.75, 0.5, 0.5)),
        *((0.25, 0.75, 0.75, 0), (0.25, 0.75, 1.0, 0), (0.0, 1.0, 0.125, 0.875)),
    ],
)
def test_the_factor_falls_on_a_line(start, end, done, factor):
    fade = Fade(start, end)
    fade.progress.fill_(done)
    assert fade().item() == factor


@pytest.mark.parametrize(("start", "end"), [(-0.1, 0.5), (0.5, 0.5), (0.6, 0.5), (0.5, 1.1)])
def test_shares_that_are_no_span_are_refused(start, end):
    with pytest.raises(ValueError, match=r"fade must be two shares of training, 0 <= start < end <= 1"):
        Fade(start, end)


class Noting(Fade):
    """A fade that notes the share of training at each step."""

    def __init__(self):
        super().__init__(0.0, 1.0)
        self.seen = []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # four segments an epoch
        ({"epochs": 2}, [0, 1 / 8, 2 / 8, 3 / 8, 4 / 8, 5 / 8, 6 / 8, 7 / 8]),
        ({"epochs": 1.5}, [0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6]),
        ({"epochs": 1, "finetune": {"epochs": 1}}, [0, 1 / 4, 2 / 4, 3 / 4, 1, 1, 1, 1]),
    ],
)
def test_each_step_knows_the_share_of_steps_before_it(settings, expected, tmp_path):
    built = model()
    built.head.noting = Noting()
    built.head.register_forward_pre_hook(
        lambda head, given: head.noting.seen.append(head.noting.progress.item()) if head.training else None
    )
    corpus = Corpus(vocab_size=V, train=TOKENS, valid=tokens(31, 1), test=tokens(29, 2))
    handmade.training(built, corpus, spec(**settings), tmp_path).fit()
    assert built.head.noting.seen == pytest.approx(expected, abs=1e-15)


def test_with_random_lengths_the_share_never_falls(tmp_path):
    built = model()
    built.head.noting = Noting()
    built.head.register_forward_pre_hook(
        lambda head, given: head.noting.seen.append(head.noting.progress.item()) if head.training else None
    )
    corpus = Corpus(vocab_size=V, train=tokens(400), valid=tokens(31, 1), test=tokens(29, 2))
    lengths = {"random_lengths": {"shortest": 2, "deviation": 3.0, "half": 0.5}}
    handmade.training(built, corpus, spec(epochs=3, **lengths), tmp_path).fit()
    seen = built.head.noting.seen
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert 0.9 < seen[-1] < 1


class Kept(Fade):
    """A fade as it is in a CUDA graph: its loss is computed to the end."""

    is_over = property(lambda self: False, lambda self, value: None)


@pytest.mark.parametrize(
    ("head", "unused"),
    [
        (ComponentSpec(name="early", params={"layer": 0, "fade": (0.0, 0.5)}), "early."),
        (ComponentSpec(name="mtp_module", params={"num_heads": 2, "fade": (0.0, 0.5)}), "block."),
        (ComponentSpec(name="mtp", params={**MTP.params, "maps": "linear"}), "ahead."),
    ],
    ids=str,
)
def test_a_loss_that_is_over_is_left_out_and_the_likelihood_is_that_with_a_weight_of_0(head, unused, tmp_path):
    train = spec(epochs=3, optimizer="adam", lr=0.01)
    corpus = Corpus(vocab_size=V, train=TOKENS, valid=tokens(31, 1), test=tokens(29, 2))
    weights, gradients = [], []
    for kind in (Fade, Kept):
        built = model(backbone=TWO_LAYERS, head=head)
        for module in followers(built.head):
            module.__class__ = kind
        handmade.training(built, corpus, train, tmp_path / kind.__name__).fit()
        weights.append({**built.backbone.state_dict(), **built.head.output.state_dict()})
        gradients.append({name: each.grad for name, each in built.head.named_parameters() if name.startswith(unused)})
    skipped, kept = gradients
    assert len(skipped) > 0
    assert set(skipped.values()) == {None}
    assert all(each.count_nonzero() == 0 for each in kept.values())
    for name, each in weights[0].items():
        torch.testing.assert_close(each, weights[1][name], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("progress", "message"),
    [
        (torch.tensor(0), r"Linear\.progress must have a floating-point type, got torch\.int64"),
        (torch.zeros(1), r"Linear\.progress must be a buffer, a tensor \(\)"),
        (nn.Parameter(torch.zeros(())), r"Linear\.progress must be a buffer"),
        (0.5, r"Linear\.progress must be a buffer"),
    ],
)
def test_what_is_no_share_is_refused(progress, message):
    module = nn.Linear(2, 2)
    if isinstance(progress, torch.Tensor) and not isinstance(progress, nn.Parameter):
        module.register_buffer("progress", progress)
    else:
        module.progress = progress
    with pytest.raises(TypeError, match=message):
        followers(module)


def test_a_head_that_does_not_ask_has_no_follower():
    assert followers(model().head) == []
    assert len(followers(model(head=MTP).head)) == 2
    assert followers(nn.Module()) == []


def test_of_a_faded_head_the_loss_is_that_of_a_softmax_and_the_likelihood_never_knows():
    built = model(head=MTP).eval()
    segment = torch.randint(V, (3, 6), generator=torch.Generator().manual_seed(1))
    hidden = built.backbone(segment)
    losses, words = [], []
    for done in (0.0, 0.375, 1.0):
        for module in followers(built.head):
            module.progress.fill_(done)
        distribution = built.head(hidden)
        losses.append(distribution.training_loss(segment).item())
        words.append(distribution.nll(segment))
        # (1 / 18) sum_t [nll_t + w_1 nll(y_(t+1) | t) + w_2 nll(y_(t+2) | t)]
        expected = 0.0
        shares = {0.0: (1, 0.5, 0.25), 0.375: (1, 0.5 * 0.75, 0.25 * 0.25), 1.0: (1, 0, 0)}[done]
        logp = distribution.log_probs().double()
        for row in range(3):
            for t in range(6):
                for ahead, share in enumerate(shares):
                    if t + ahead < 6:
                        expected -= share * logp[row, t, segment[row, t + ahead]].item()
        assert losses[-1] == pytest.approx(expected / 18, rel=1e-5)
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] == pytest.approx(words[2].mean().item(), rel=1e-6)
    assert torch.equal(words[0], words[1])
    assert torch.equal(words[0], words[2])
