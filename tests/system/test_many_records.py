"""What commands cost on many finished records: what they do once for each record must be cheap."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import WITHOUT_GPU
from handmade import record

from harness import plan
from harness.records import store

SEEDS = (1, 21)  # of 20 rows
SECONDS_A_RECORD = 0.015  # of the processor: ten times what a table of 1,000 takes
SUITE = """\
name: many
version: 1
corpora: [embedded]
backbones:
  - lstm: {d_model: 48, num_layers: 1, dropout: 0.1}
  - transformer_encoder: {d_model: 64, num_layers: 1, num_heads: 4, d_ff: 64, dropout: 0.1}
heads:
  - softmax
  - sigsoftmax
  - mos: {num_mixtures: [2, 3, 4, 5, 6, 8, 10, 15]}
train: {optimizer: sgd, lr: 7, epochs: 40, batch_size: 20, seq_len: 35}
seeds: [SEEDS]
table: {baseline: softmax}
"""


def make(folder: Path, seeds: int) -> None:
    """A suite of 20 rows whose trials are all finished: records made by hand."""
    place = folder / "suites" / "many.yaml"
    place.parent.mkdir(parents=True)
    place.write_text(SUITE.replace("SEEDS", ", ".join(map(str, range(1, seeds + 1)))))
    suite = plan.load(place)
    for number, spec in enumerate(suite.trials):
        total, head = suite.candidate_of(spec).params
        metrics = {"test_ppl": 100.0 + number % 7, "params_total": total, "params_head": head}
        contents = suite.contents_of(spec)
        made = record(suite="many", spec=spec, metrics=metrics, contents=contents)
        store.save(made, store.runs_folder(folder / "results", "many"))


def seconds(folder: Path, *command: str) -> float:
    """The processor time of a command in a process of its own."""
    before = os.times()
    call = [sys.executable, "-m", "harness.cli", *command]
    subprocess.run(call, cwd=folder, env={**os.environ, **WITHOUT_GPU}, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


@pytest.mark.system
def test_a_record_more_costs_milliseconds(tmp_path):
    for seeds in SEEDS:
        make(tmp_path / str(seeds), seeds)
    more = 20 * (SEEDS[1] - SEEDS[0])
    for command in (("table", "suites/many.yaml"), ("leaderboard",)):
        few, many = (seconds(tmp_path / str(seeds), *command) for seeds in SEEDS)
        assert (many - few) / more < SECONDS_A_RECORD
