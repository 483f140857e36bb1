"""The modular addition of benchmarks/grokking.py: its pairs, its network, its steps and its rule for yes or no."""

import sys
from dataclasses import replace
from math import exp
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import grokking

SCORES = {"identity": exp, "stablemax": lambda z: 1 + z if z >= 0 else 1 / (1 - z)}  # of a word by its logit


def test_every_pair_is_in_one_part_with_its_sum():
    train, test = grokking.split(0, p=7, share=0.7)
    rows = [
        (*pair, total)
        for part in (train, test)
        for pair, total in zip(part.inputs_N2.tolist(), part.sums_N.tolist(), strict=True)
    ]
    assert (len(train.sums_N), len(test.sums_N)) == (34, 15)  # 0.7 * 49 = 34.3
    assert sorted(rows) == [(a, b, (a + b) % 7) for a in range(7) for b in range(7)]
    again, other = grokking.split(0, p=7, share=0.7)[0], grokking.split(1, p=7, share=0.7)[0]
    assert again.inputs_N2.equal(train.inputs_N2)
    assert not other.inputs_N2.equal(train.inputs_N2)


@pytest.mark.parametrize("logit_map", ["identity", "stablemax"])
def test_the_network_is_that_of_the_equations(logit_map):
    """z = W relu(M relu(F [onehot(a); onehot(b)])); p ~ exp(z), or 1 + z for z >= 0 and 1 / (1 - z) below."""
    network = grokking.Network(logit_map, p=5, width=4).double()
    layers = (network.first, network.second, network.head.output)
    first, second, output = (layer.weight.tolist() for layer in layers)
    pairs = grokking.split(0, p=5)[0]
    found_NV = grokking.log_probs(network, pairs).exp()
    for (a, b), found_V in zip(pairs.inputs_N2.tolist(), found_NV, strict=True):
        low = [max(0.0, x + y) for x, y in zip(first[a], first[5 + b], strict=True)]
        top = [max(0.0, sum(m * x for m, x in zip(row, low, strict=True))) for row in second]
        z_V = [sum(w * x for w, x in zip(row, top, strict=True)) for row in output]
        scores = [SCORES[logit_map](z) for z in z_V]
        expected_V = torch.tensor([score / sum(scores) for score in scores]).double()
        torch.testing.assert_close(found_V, expected_V, rtol=1e-6, atol=0)


@pytest.mark.parametrize("logit_map", ["identity", "stablemax"])
def test_three_steps_train_every_weight_and_lower_the_loss(logit_map):
    torch.manual_seed(0)
    network, pairs = grokking.Network(logit_map, p=7, width=16), grokking.split(0, p=7)[0]
    before = [parameter.detach().clone() for parameter in network.parameters()]
    losses = [-grokking.log_probs(network, pairs).gather(1, pairs.sums_N[:, None]).mean().item()]
    for _ in grokking.train(network, pairs, [1, 3]):
        losses.append(-grokking.log_probs(network, pairs).gather(1, pairs.sums_N[:, None]).mean().item())
    assert len(losses) == 3  # at the start, after one step and after three
    assert losses[2] < losses[1] < losses[0]
    assert all(not old.equal(new) for old, new in zip(before, network.parameters(), strict=True))


def test_the_shares_of_zeros_are_those_of_a_hand_count():
    """In row 1 p is (1, 0, 0): a term and three gradients are 0. In row 2 it is (1/2, 1/2, 0): one gradient is."""
    logp_NV = torch.tensor([[0.0, -200.0, -300.0], [-0.6931472, -0.6931472, -200.0]])
    assert grokking.zeros(logp_NV, torch.tensor([0, 1])) == pytest.approx((1 / 2, 4 / 6))


SOFTMAX = grokking.Outcome(
    seed=0, head="softmax", steps=3, train=1.0, test=0.49, zero_terms=1.0, zero_gradients=1.0, seconds=1.0
)
STABLEMAX = replace(SOFTMAX, head="StableMax", train=0.99, test=0.95)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([SOFTMAX, STABLEMAX], True),
        ([SOFTMAX, replace(SOFTMAX, test=0.5), STABLEMAX], False),  # one softmax generalises by half
        ([SOFTMAX, STABLEMAX, replace(STABLEMAX, test=0.949)], False),  # one StableMax does not
        ([replace(SOFTMAX, train=0.98), STABLEMAX], False),  # it has not learnt its training pairs
        ([SOFTMAX, replace(STABLEMAX, train=0.98)], False),
        ([SOFTMAX], False),
        ([STABLEMAX], False),
    ],
)
def test_yes_needs_all_seeds_of_both_heads(outcomes, expected):
    assert grokking.verdict(outcomes) is expected
