"""Six tiny trials in a folder for a module, and heads that only the workers of Ray find."""

import os
from pathlib import Path

import pytest

from harness import plan
from harness.trial.setting import Setting

SUITE = """\
name: tiny
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1, dropout: 0.1}}]
heads: [softmax, {mos: {num_mixtures: [2, 3], dropout: 0.1}}]
train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2]
table: {baseline: softmax}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder for the tests of a module."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def suite(place):
    """Six trials of two epochs and 15 batches each: softmax, mos of K = 2 and 3, under seeds 1 and 2."""
    path = place / "suites" / "tiny.yaml"
    path.parent.mkdir()
    path.write_text(SUITE)
    return plan.load(path)


@pytest.fixture(scope="module")
def setting(place):
    """A function: name of a runs' folder, executor -> Setting on the CPU."""

    def make(name: str, executor: str) -> Setting:
        return Setting(suite="tiny", runs=place / name, data=place / "data", device="cpu", executor=executor)

    return make


@pytest.fixture(scope="module")
def plugin(place):
    """A function: head's name, its class, the module's text. It makes a plug-in that only workers find."""
    with pytest.MonkeyPatch.context() as patch:

        def make(name: str, cls: str, text: str) -> None:
            about = place / "plugin" / f"{name}_head-1.dist-info"
            about.mkdir(parents=True)
            (place / "plugin" / f"{name}_head.py").write_text(text)
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-head\nVersion: 1\n")
            (about / "entry_points.txt").write_text(f"[harness.heads]\n{name} = {name}_head:{cls}\n")
            patch.setenv("PYTHONPATH", str(place / "plugin"), prepend=os.pathsep)

        yield make
