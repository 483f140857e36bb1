"""Two equal heads, one of which needs four times the learning rate, are trained: a false difference without `tune`.

Each table has its own text, tuning seed and trial seeds. HARNESS_TEST_TABLES=100 makes a hundred tables.
"""

import math
import os
from collections import Counter

import handmade
import pytest
from torch import Tensor, nn

import harness
from harness.distributions import Mixture
from harness.registry import HEADS

TABLES = int(os.environ.get("HARNESS_TEST_TABLES", "1"))
pytestmark = pytest.mark.timeout(600 * TABLES)  # seconds
SHARE = 0.25  # of the gradient that the slow head lets through
SUITE = """\
name: planted
version: 1
corpora: [{{markov: {{vocab_size: 12, num_tokens: 3000, branching: 3, seed: {table}}}}}]
backbones: [{{lstm: {{d_model: 8, num_layers: 1}}}}]
heads: [softmax, slow]
train:
  optimizer: sgd
  lr: 6
  epochs: 16
  schedule: {{step: {{after: 8, factor: 0.7}}}}
  batch_size: 8
  seq_len: 20
seeds: [{seeds}]
measure: {{exclusive: false, token_nll: false}}
table: {{baseline: softmax}}
"""
TUNE = "tune: {{trials: 8, epochs: 8, seed: {table}, space: {{train.lr: {{log_uniform: [2, 64]}}}}}}\n"


class Slow(nn.Module):
    """The softmax, with SHARE of its gradient for every parameter: SGD at the rate r trains it as SGD at SHARE r trains
    the softmax.
    """

    def __init__(self, dims, embedding):
        super().__init__()
        self.plain = HEADS.get("softmax")(dims, embedding)

    def forward(self, hidden) -> Mixture:
        output = self.plain.output
        return Mixture(
            _less(hidden.layers[-1]).unsqueeze(2),
            None,
            _less(output.weight),
            _less(output.bias),
        )


def _less(tensor: Tensor) -> Tensor:
    return SHARE * tensor + (1 - SHARE) * tensor.detach()


@pytest.fixture(autouse=True)
def slow(monkeypatch):
    """The head `slow`, known for the time of a test. The trials are not asked for certificates."""
    handmade.without_certifier(monkeypatch)
    HEADS.names()  # so that the heads of the package are known already
    monkeypatch.setitem(HEADS._classes, "slow", Slow)


def compared(number: int, folder, *, tuned: bool):
    """The comparison of the slow head with the softmax in one table."""
    seeds = ", ".join(str(1000 + 10 * number + seed) for seed in range(6))
    path = folder / "suite.yaml"
    path.write_text((SUITE + (TUNE if tuned else "")).format(table=number, seeds=seeds))
    study = harness.run_suite(path, results=folder / "results", data=folder, executor="inline", tracking=False)
    return study.findings.compared[study.rows[1]]


def verdicts(tmp_path, *, tuned: bool) -> tuple[Counter[str], list[float]]:
    """How often each verdict was given, and the differences in percent."""
    found, differences = Counter(), []
    for number in range(TABLES):
        folder = tmp_path / str(number)
        folder.mkdir()
        comparison = compared(number, folder, tuned=tuned)
        found[comparison.verdict] += 1
        differences.append(100 * math.expm1(comparison.difference.mean))
    print(f"{'tuned' if tuned else 'not tuned'}: {dict(found)}, differences in percent {differences}")
    return found, differences


def test_without_tuning_a_head_with_another_best_rate_is_called_worse(tmp_path):
    found, differences = verdicts(tmp_path, tuned=False)
    assert found["worse"] >= 0.9 * TABLES
    assert sorted(differences)[TABLES // 10] > 5  # of a hundred tables all but ten


def test_with_tuning_equal_heads_differ_by_little(tmp_path):
    found, differences = verdicts(tmp_path, tuned=True)
    assert sorted(map(abs, differences), reverse=True)[TABLES // 10] < 5
    if TABLES >= 20:  # of fewer tables the share says nothing
        assert found["worse"] + found["better"] <= 0.1 * TABLES
