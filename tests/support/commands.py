"""For tests of the command line: a tiny suite, the command as a process of its own, and what commands leave."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from head_table import rows
from ruamel.yaml import YAML

from harness.extensions import lack_of

WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": ""}  # of processes: trials of tests are compared with trials on the CPU
PATIENCE = 1000.0  # seconds: how long a test waits for a process or an event that usually takes less than 100

SUITE = """\
name: tiny
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax, {mos: {num_mixtures: 2}}]
train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2]
measure: {exclusive: false}
table: {baseline: softmax}
"""

TEXT = "{embedded: {level: char, characters: 600}}"  # 534, 37 and 94 characters: byte_loss needs tokens with a text
# One line of a suite for every head and every backbone that is installed, small enough for twelve words.
EVERY_HEAD = [f"{{{name}: {given}}}" if given else name for name, given in rows("suite")]
_BACKBONES = [
    "{lstm: {d_model: 8, num_layers: 3, dropout: 0.1}}",
    "{gru: {d_model: 8, num_layers: 3, dropout: 0.1}}",
    "{awd_lstm: {d_embed: 8, d_hidden: 8, num_layers: 3, dropout: 0.1}}",
    "{bilstm: {d_model: 8, num_layers: 3, dropout: 0.1}}",
    "{transformer_encoder: {d_model: 8, num_layers: 3, num_heads: 2, d_ff: 8, dropout: 0.1}}",
    "{gpt2: {d_model: 8, num_layers: 3, num_heads: 2, dropout: 0.1}}",
    "{hf: {layers: [[0, 1, 2]], config: {model_type: llama, hidden_size: 8, intermediate_size: 8, "
    "num_attention_heads: 2, num_hidden_layers: 3, attention_dropout: 0.1}}}",
]
EVERY_BACKBONE = [each for each in _BACKBONES if not lack_of(f"harness.backbones.{each[1:].partition(':')[0]}")]


def mistakes(of: str) -> list[tuple[str, str]]:
    """Commands with a mistake, and what is said of it: a part of tests/golden/messages/cli/commands.yaml."""
    golden = Path(__file__).parents[1] / "golden" / "messages" / "cli" / "commands.yaml"
    return list(YAML(typ="safe").load(golden)[of].items())


def started(folder: Path, *arguments) -> subprocess.Popen:
    """The command line as a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k not in ("HARNESS_DATA", "HARNESS_RESULTS")} | WITHOUT_GPU
    return subprocess.Popen(
        [sys.executable, "-m", "harness.cli", *map(str, arguments)],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )


def record_files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Trial id -> time of writing and content of its record."""
    found = (folder / "results" / "runs" / "tiny").glob("*/record.json")
    return {path.parent.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def files(folder: Path) -> dict[str, int]:
    """What is below a folder, with the times of the files. What is tried out in a folder changes the folder's own."""
    return {str(path): path.stat().st_mtime_ns if path.is_file() else 0 for path in sorted(folder.rglob("*"))}


def table_rows(markdown: str) -> dict[str, str]:
    """Head -> the n cell of its row."""
    rows = [line.split("|") for line in markdown.splitlines() if line.startswith("| ")][1:]
    return {row[1].strip(): row[-2].strip() for row in rows}


def planned(harness, *arguments) -> list[dict]:
    return json.loads(harness("plan", "suites/tiny.yaml", "--json", *arguments).out)["trials"]
