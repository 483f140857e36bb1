"""How often a leak after one word of r is found by P positions: as often as the formula says."""

import handmade
import pytest
import torch

from harness import plan
from harness.integrity import certify as certifying
from harness.records import sidecars
from harness.training.checkpoint import BEST
from harness.trial.run import run

pytestmark = pytest.mark.system
DRAWS = 20
WORDS = 600
SUITE = """\
name: leaks
version: 1
corpora: [{{markov: {{vocab_size: {words}, num_tokens: 60000, branching: 3}}}}]
backbones: [{{looking_ahead: {{d_model: 16, num_layers: 1, one_in: {one_in}}}}}]
heads: [softmax]
train: {{optimizer: adam, lr: 0.01, epochs: 1, batch_size: 20, seq_len: 20, eval_batch_size: {columns}}}
seeds: [1]
"""


def share_found(task, counted_N, positions, monkeypatch) -> float:
    monkeypatch.setattr(certifying, "POSITIONS", positions)
    best = task.folder / BEST
    return sum(certifying.certify(task, best, {"test": counted_N}).fault is not None for _ in range(DRAWS)) / DRAWS


@pytest.mark.parametrize("one_in", [30, 300])
def test_a_rare_leak_is_found_as_often_as_the_formula_says(one_in, tmp_path, monkeypatch, cheating):
    path = tmp_path / "leaks.yaml"
    path.write_text(SUITE.format(words=WORDS, one_in=one_in, columns=10))
    (spec,) = plan.load(path).trials
    task = handmade.task(runs=tmp_path / "runs", spec=spec)
    counted_N = torch.from_numpy(sidecars.TOKEN_NLL.load(task.runs, run(task)).nll)
    hit = (certifying.load_planned(spec, task.data, None).test[:-1] % one_in == 0).double().mean().item()
    for positions in (64, 256):
        due = 1 - (1 - hit) ** positions
        found = share_found(task, counted_N, positions, monkeypatch)
        print(f"1 in {one_in}, {positions} positions: found {found:.3f}, formula {due:.3f}")
        # four standard deviations; the positions are drawn without replacement, which finds a little more
        assert abs(found - due) <= 4 * (due * (1 - due) / DRAWS) ** 0.5 + 0.03
