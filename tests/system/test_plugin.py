"""A head of a separate package, found by its entry point: listed, checked and trained with no file of ours changed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import PATIENCE

PACKAGE = Path(__file__).parents[1] / "plugin_package"
SUITE = """\
name: plugin
version: 1
corpora:
  - markov: {vocab_size: 12, num_tokens: 400, branching: 3}
backbones:
  - lstm: {d_model: 8, num_layers: 1}
heads:
  - softmax
  - temperature: {start: 0.2}
train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}
seeds: [1]
measure: {exclusive: false}
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A process environment that sees the package as installed, in a folder of its own."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PACKAGE, folder / "source")
    site = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(site), str(folder / "source")], check=True, capture_output=True)
    return {**os.environ, "PYTHONPATH": str(site)}


def harness(environment, *arguments, cwd):
    command = [sys.executable, "-m", "harness.cli", *arguments]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE)


def test_it_is_listed_with_its_origin_and_parameters(environment, tmp_path):
    done = harness(environment, "list", "heads", "--json", cwd=tmp_path)
    entry = {each["name"]: each for each in json.loads(done.stdout)}["temperature"]
    assert entry["from"] == "plug-in temperature-head 1.2.3 (temperature_head:TemperatureSoftmax)"
    assert entry["parameters"] == ["start: number = 0.1"]


def test_it_passes_the_conformance_suite(environment, tmp_path):
    done = harness(environment, "check", "temperature", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "head temperature: 13 of 13 checks passed" in done.stdout


def test_it_trains_in_a_suite(environment, tmp_path):
    (tmp_path / "plugin.yaml").write_text(SUITE)
    done = harness(environment, "run", "plugin.yaml", "--no-tracking", "--executor", "inline", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| temperature |" in done.stdout
    records = [json.loads(path.read_text()) for path in tmp_path.glob("results/runs/plugin/*/record.json")]
    assert sorted((r["spec"]["head"]["name"], r["status"]) for r in records) == [
        ("softmax", "ok"),
        ("temperature", "ok"),
    ]
