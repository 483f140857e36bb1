"""`harness.register_head`: a class of a notebook or script is a head of its process."""

import subprocess
import sys

import pytest
from commands import PATIENCE

SCRIPT = """\
import sys
import torch
from torch import nn
import harness
from harness.code.fingerprints import code_of
from harness.distributions import Mixture
from harness.errors import ExecutionError

@harness.register_head("mine")
class Mine(nn.Module):
    def __init__(self, dims, embedding, *, scale: float = 1.0):
        super().__init__()
        self.weight = nn.Parameter(scale * torch.randn(dims.vocab_size, dims.layer_dims[-1]))

    def forward(self, hidden):
        return Mixture(hidden.layers[-1].unsqueeze(2), None, self.weight)

if __name__ == "__main__":
    print("code", code_of("head", "mine").sha256)
    try:
        study = harness.run_suite("mine.yaml", executor=sys.argv[1], tracking=False, device="cpu")
        print("status", *study.frame()["status"])
    except ExecutionError as refused:
        print("refused", refused)
"""
SUITE = """\
corpora: [markov: {vocab_size: 12, num_tokens: 400, branching: 3}]
backbones: [lstm: {d_model: 8, num_layers: 1}]
heads: [mine]
seeds: [1]
train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}
measure: {exclusive: false}
"""


@pytest.fixture
def script(tmp_path):
    """A function that runs the script with an executor, and returns what its lines begin with -> the rest."""

    def run(executor: str, text: str = SCRIPT) -> dict[str, str]:
        (tmp_path / "mine.yaml").write_text(SUITE)
        (tmp_path / "script.py").write_text(text)
        command = [sys.executable, "script.py", executor]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())

    return run


def test_it_trains_in_this_process_and_an_edit_changes_its_fingerprint(script):
    first = script("inline")
    assert first["status"] == "ok"
    assert len(first["code"]) == 64
    assert script("inline", SCRIPT.replace("scale * torch", "2 * scale * torch"))["code"] != first["code"]


@pytest.mark.system
def test_ray_refuses_it_with_what_to_do(script):
    refused = script("ray")["refused"]
    assert "the head 'mine' is a class of this notebook or script" in refused
    assert "heads/mine.py" in refused
