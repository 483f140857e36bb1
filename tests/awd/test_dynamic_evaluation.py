"""Dynamic evaluation against a loop over scalars' equations, and what it leaves as it was."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from small import LSTM, V, model, tokens
from torch.nn.functional import cross_entropy

from harness.corpora.corpus import Corpus
from harness.errors import ExecutionError
from harness.plan.specs import ComponentSpec
from harness.plan.suite_file import DynamicSpec
from harness.training.dynamic_evaluation import dynamic_evaluation

AWD = ComponentSpec(name="awd_lstm", params={"d_embed": 4, "d_hidden": 5, "num_layers": 2})
TEXT = Corpus(vocab_size=V, train=tokens(67), valid=tokens(22, seed=1), test=tokens(18, seed=2))
SETTINGS = DynamicSpec(lr=0.05, decay=0.4, epsilon=0.01, seq_len=3, batch_size=4)
TIED = ComponentSpec(name="softmax", params={"tie_weights": True})


def nll(built, inputs_BT, targets_BT, state):
    """The nats of each token, and the state after them."""
    hidden = built.backbone(inputs_BT, state)
    logits = built.head.output(hidden.layers[-1])
    nats = cross_entropy(logits.flatten(0, 1), targets_BT.flatten(), reduction="none")
    return nats, tuple(tuple(each.detach() for each in pair) for pair in hidden.state)


def looped(built, settings, split):
    """The perplexity of a split by the equations."""
    built.eval()
    weights = list(built.parameters())
    squares, state = [torch.zeros_like(each) for each in weights], None
    columns = TEXT.train[: 4 * 16].view(4, 16)
    for begin in range(0, 15, 3):
        end = min(begin + 3, 15)
        nats, state = nll(built, columns[:, begin:end], columns[:, begin + 1 : end + 1], state)
        for square, gradient in zip(squares, torch.autograd.grad(nats.mean(), weights), strict=True):
            square += gradient**2
    roots = [each.sqrt() for each in squares]
    total = sum(each.mean().item() for each in roots)
    start, text, summed, state = [each.detach().clone() for each in weights], getattr(TEXT, split), 0.0, None
    for begin in range(0, len(text) - 1, 3):
        end = min(begin + 3, len(text) - 1)
        nats, state = nll(built, text[None, begin:end], text[None, begin + 1 : end + 1], state)
        summed += nats.sum().item()
        gradients = torch.autograd.grad(nats.mean(), weights)
        with torch.no_grad():
            for w, w_0, g, root in zip(weights, start, gradients, roots, strict=True):
                share = torch.tensor(
                    [min(each / total, 1 / (settings.decay or 1e-9)) for each in root.flatten().tolist()]
                )
                pull = settings.decay * share.view(root.shape).to(w) * (w_0 - w)
                w += pull - settings.lr * g / (root + settings.epsilon)
    return math.exp(summed / (len(text) - 1))


@pytest.mark.parametrize("decay", [0.4, 8.0, 0.0], ids=["decay", "clipped share", "no decay"])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_perplexity_equals_the_loop(split, decay):
    settings = SETTINGS.model_copy(update={"decay": decay})
    expected = looped(model(AWD, TIED).double(), settings, split)
    found = dynamic_evaluation(model(AWD, TIED).double(), TEXT, settings)
    assert found[f"dynamic_{split}_ppl"] == pytest.approx(expected, rel=1e-7)  # shares of the loop are float32
    static = looped(model(AWD, TIED).double(), settings.model_copy(update={"lr": 0.0, "decay": 0.0001}), split)
    assert abs(expected - static) > 1e-3  # or nothing was tried


def test_the_weights_are_afterwards_as_they_were_and_the_backbone_reads_without_dropout():
    built = model(AWD, TIED)
    before = {name: each.clone() for name, each in built.state_dict().items()}
    first, second = (dynamic_evaluation(built, TEXT, SETTINGS) for _ in range(2))
    assert first == second
    assert all(torch.equal(each, before[name]) for name, each in built.state_dict().items())
    assert not any(module.training for module in built.modules())


def test_a_rate_near_zero_gives_the_perplexity_of_the_weights():
    built = model(LSTM).double()
    found = dynamic_evaluation(built, TEXT, SETTINGS.model_copy(update={"lr": 1e-12}))
    with torch.no_grad():
        nats, _ = nll(built.eval(), TEXT.test[None, :-1], TEXT.test[None, 1:], None)
    assert found["dynamic_test_ppl"] == pytest.approx(nats.mean().exp().item(), rel=1e-9)


def test_a_backbone_without_a_state_is_refused():
    encoder = ComponentSpec(name="transformer_encoder", params={"d_model": 4, "num_heads": 2, "d_ff": 4})
    with pytest.raises(ExecutionError, match=r"measure\.dynamic: backbone transformer_encoder carries no state"):
        dynamic_evaluation(model(encoder), TEXT, SETTINGS)


def test_layers_of_rnns_are_in_training_mode_and_no_other_module():
    built, seen = model(AWD, TIED), set()
    for name, module in built.named_modules():
        module.register_forward_pre_hook(lambda module, _, name=name: seen.add((name, module.training)))
    dynamic_evaluation(built.train(), TEXT, SETTINGS)
    layers = {f"backbone.layers.{index}" for index in range(2)}
    assert layers <= {name for name, training in seen if training}
    later = {name for name, training in seen if training} - layers
    assert later == set()


def test_dropout_within_torchs_layers_is_off_and_back_afterwards():
    built = model(LSTM).double()
    built.backbone.layers[0] = layer = torch.nn.LSTM(6, 6, num_layers=2, batch_first=True, dtype=torch.float64)
    without = dynamic_evaluation(built, TEXT, SETTINGS)
    assert without["dynamic_test_ppl"] == pytest.approx(looped(copy.deepcopy(built), SETTINGS, "test"), rel=1e-7)
    layer.dropout = 0.5
    assert dynamic_evaluation(built, TEXT, SETTINGS) == without
    assert layer.dropout == 0.5


def test_a_parameter_that_is_not_used_or_not_trained_stays():
    built = model(AWD, TIED)
    built.head.unused = torch.nn.Parameter(torch.ones(3))
    built.backbone.layers[0].bias_hh_l0.requires_grad_(False)
    before = built.backbone.layers[0].bias_hh_l0.clone()
    assert len(dynamic_evaluation(built, TEXT, SETTINGS)) == 2
    assert torch.equal(built.backbone.layers[0].bias_hh_l0, before)
    assert torch.equal(built.head.unused, torch.ones(3))


def test_tokens_may_be_narrow_and_every_segment_is_a_sign_of_life():
    beats = []
    narrow = Corpus(vocab_size=V, train=TEXT.train.int(), valid=TEXT.valid.int(), test=TEXT.test.int())
    found = dynamic_evaluation(model(AWD, TIED), narrow, SETTINGS, beat=lambda: beats.append(1))
    assert found == dynamic_evaluation(model(AWD, TIED), TEXT, SETTINGS)
    assert len(beats) == 5 + 7 + 6  # 15, 21 and 17 targets in segments of 3


def test_a_perplexity_that_overflows_is_left_out():
    assert dynamic_evaluation(model(AWD, TIED), TEXT, SETTINGS.model_copy(update={"lr": 1e30})) == {}


def test_a_training_split_without_a_batch_is_refused():
    just_enough = replace(TEXT, train=tokens(66))
    assert len(dynamic_evaluation(model(LSTM), just_enough, SETTINGS.model_copy(update={"batch_size": 33}))) == 2
    with pytest.raises(ExecutionError, match="the training split has 67 tokens, fewer than two for each of 34 rows"):
        dynamic_evaluation(model(LSTM), TEXT, SETTINGS.model_copy(update={"batch_size": 34}))
