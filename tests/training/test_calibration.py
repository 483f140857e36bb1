"""Calibration error and entropy of a split, against a loop over its tokens."""

import math

import pytest
import torch
from small import Bare, bigram
from small import spec as small_spec

from harness.errors import ExecutionError
from harness.training.evaluation import calibration

V = 5


def spec(**changes):
    return small_spec(**{"batch_size": 2, "seq_len": 4, "eval_batch_size": 3, **changes}).evaluation


def model_of(probabilities, head=None):
    return bigram(torch.tensor(probabilities, dtype=torch.float64).log(), head)


def by_loop(probabilities, pairs):
    bins = [[] for _ in range(15)]
    entropies = []
    for before, target in pairs:
        p = probabilities[before]
        confidence = max(p)
        place = max(b for b in range(15) if confidence > b / 15)
        bins[place].append((confidence, p.index(confidence) == target))
        entropies.append(-sum(x * math.log(x) for x in p))
    total = sum(map(len, bins))
    error = sum(abs(sum(right for _, right in b) - sum(c for c, _ in b)) for b in bins) / total
    return error, sum(entropies) / total


def random_table():
    generator = torch.Generator().manual_seed(0)
    return (3 * torch.randn(V, V, generator=generator, dtype=torch.float64)).softmax(-1).tolist()


@pytest.mark.parametrize("settings", [{}, {"seq_len": 7, "eval_batch_size": 1}, {"batching": "blocks"}], ids=str)
def test_the_error_and_the_entropy_equal_a_loop_over_the_scored_tokens(settings):
    tokens = torch.randint(V, (60,), generator=torch.Generator().manual_seed(1))
    pairs = list(zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True))
    if settings.get("batching") == "blocks":
        pairs = [pair for i, pair in enumerate(pairs, start=1) if i % 4]  # the first token of a block is no target
    error, entropy = by_loop(random_table(), pairs)
    found = calibration(model_of(random_table()), tokens, spec(**settings))
    assert found == {
        "test_calibration_error": pytest.approx(error, abs=1e-6),
        "test_entropy": pytest.approx(entropy, abs=1e-6),
    }


@pytest.mark.parametrize(("p", "same_bin"), [(0.39, True), (0.41, False)])
def test_a_bin_is_a_fifteenth_wide(p, same_bin):
    # rows with confidence p and 0.36, one right and one wrong; 6/15 = 0.4 divides the bins
    table = [[p, *[(1 - p) / 4] * 4], [0.36, *[0.16] * 4], *[[0.2] * 5] * 3]
    found = calibration(model_of(table), torch.tensor([0, 0, 1, 2]), spec(eval_batch_size=1, eval_batches=1))
    # the tokens' contexts are 0, 0, 1: confidences p, p, 0.36; right, wrong, wrong
    expected = abs(1 - 2 * p - 0.36) / 3 if same_bin else (abs(1 - 2 * p) + 0.36) / 3
    assert found["test_calibration_error"] == pytest.approx(expected, abs=1e-6)


def test_a_distribution_without_statistics_is_a_sentence():
    with pytest.raises(ExecutionError, match=r"measure\.calibration: head returns a Plain, which has no method"):
        calibration(model_of(random_table(), Bare()), torch.zeros(25, dtype=torch.long), spec())
