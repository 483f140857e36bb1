"""What commands cost on many finished records: `python -m benchmarks.scale [--trials 100 1000] [--save]`.

Makes results folders of finished trials on the shipped novel, of which none was trained: their records verify and have
curves of 40 epochs, every trial has scores of its test tokens, one trial of each row an exclusive timing. Then each
command runs as a process of its own; wall time and peak memory are of the process. A command that this harness has not
is left out, and named.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from benchmarks.machine import high_load
from benchmarks.measurement import save_with_table, slug
from benchmarks.tables import markdown_table
from harness import cli, environment, plan, records, timings, token_scores
from harness.plan.specs import Suite, TrialSpec
from harness.records import Contents, CurvePoint, Environment, TrialRecord
from harness.registry import CORPORA
from harness.timings import Timing
from harness.token_scores import TokenScores

EPOCHS, ROWS = 40, 20
SUITE = """\
name: scale
version: 1
corpora: [embedded]
backbones:
  - lstm: {d_model: 48, num_layers: 1, dropout: 0.1}
  - transformer_encoder: {d_model: 64, num_layers: 1, num_heads: 4, d_ff: 64, dropout: 0.1}
heads:
  - softmax
  - sigsoftmax
  - mos: {num_mixtures: [2, 3, 4, 5, 6, 8, 10, 15]}
train: {optimizer: sgd, lr: 7, schedule: {plateau: {factor: 0.5714}}, epochs: EPOCHS, batch_size: 20, seq_len: 35}
seeds: [SEEDS]
table: {baseline: softmax}
"""
# Command -> its arguments, the seconds that it may take at 1,000 trials, None where none are given.
COMMANDS: dict[str, tuple[tuple[str, ...], float | None]] = {
    "plan": (("suites/scale.yaml",), 5),
    "table": (("suites/scale.yaml",), 5),
    "leaderboard": ((), 5),
    "report": (("suites/scale.yaml",), 20),
    "export": (("records.zip",), None),
    "import": (("records.zip", "--results", "imported"), None),
    "sync": ((), 60),
}
AT, PAGE_MIB = 1_000, 10  # trials that the seconds are for; of the page


class Cost(BaseModel):
    """One command on one folder. `page_mib`: of the largest page it wrote, None where it wrote none."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    command: str
    trials: int
    seconds: float
    peak_mib: float
    page_mib: float | None = None


class Costs(BaseModel):
    """All commands on all folders, and where they were measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["scale"] = "scale"
    device: str
    python: str
    commit: str
    started: str
    load_average: float
    contended: tuple[str, ...]
    absent: tuple[str, ...]
    costs: tuple[Cost, ...]


def make(folder: Path, trials: int) -> Suite:
    """A project folder with a suite of so many trials, all finished, and its results. Raises ValueError where the
    number is none of whole rows.
    """
    seeds, over = divmod(trials, ROWS)
    if over or not seeds:
        raise ValueError(f"{trials} trials are not {ROWS} rows of equally many seeds")
    place = folder / "suites" / "scale.yaml"
    place.parent.mkdir(parents=True)
    text = SUITE.replace("SEEDS", ", ".join(map(str, range(1, seeds + 1)))).replace("EPOCHS", str(EPOCHS))
    place.write_text(text, encoding="utf-8")
    suite = plan.load(place)
    runs = records.runs_folder(folder / "results", suite.name)
    scored = _scored_tokens(suite)
    for spec in suite.trials:
        _finish(suite, spec, runs, scored)
    return suite


def measure(trials: list[int], commands: list[str]) -> Costs:
    """Every command, on folders of so many trials each."""
    load = environment.load_average()
    known = {command.name for command in cli.app.registered_commands}
    costs = []
    for number in trials:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), number)
            for command in commands:
                if command in known:
                    costs.append(_run(command, Path(folder), number))
                    print(_told(costs[-1]), file=sys.stderr, flush=True)
    return Costs(
        device=environment.device_name(torch.device("cpu")),
        python=sys.version.split()[0],
        commit=environment.commit(),
        started=environment.now(),
        load_average=round(load, 2),
        contended=tuple(high_load(load, 1)),
        absent=tuple(command for command in commands if command not in known),
        costs=tuple(costs),
    )


def markdown(measured: Costs) -> str:
    """The table, and how it was made."""
    found = [["command", "finished trials", "seconds", "may take", "peak MiB", "page MiB"]]
    for cost in measured.costs:
        limit = COMMANDS[cost.command][1] if cost.trials == AT else None
        page = "-" if cost.page_mib is None else f"{cost.page_mib:.1f}"
        may = "-" if limit is None else f"{limit:g}"
        found.append([cost.command, f"{cost.trials:,}", f"{cost.seconds:.1f}", may, f"{cost.peak_mib:.0f}", page])
    flag = f"CONTENDED: {'; '.join(measured.contended)}. " if measured.contended else ""
    absent = f"\n- Not there: {', '.join(measured.absent)}." if measured.absent else ""
    return f"""\
# What commands cost on many finished records, on {measured.device}

Made by `python -m benchmarks.scale --save`: synthetic records with curves of {EPOCHS} epochs, scores of test tokens
beside each, one process a command. A page may have {PAGE_MIB} MiB.

{markdown_table(found)}
{absent}
- {flag}Python {measured.python}, load {measured.load_average:.2f} at the start, harness at {measured.commit},
  {measured.started}.
"""


def main(given: list[str] | None = None) -> None:
    """Measure, print the table, and write it where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, nargs="+", default=[100, AT], help=f"multiples of {ROWS}")
    parser.add_argument("--only", nargs="+", choices=list(COMMANDS), default=list(COMMANDS), metavar="COMMAND")
    parser.add_argument("--make", type=Path, metavar="DIR", help="only make the folder of the first number of trials")
    parser.add_argument("--save", action="store_true", help="write results/bench and results/tables")
    options = parser.parse_args(given)
    if options.make is not None:
        make(options.make, options.trials[0])
        return
    measured = measure(options.trials, options.only)
    print(markdown(measured))
    if options.save:
        for place in save_with_table(f"scale_{slug(measured.device)}", measured, markdown(measured), Path("results")):
            print(place)


def _finish(suite: Suite, spec: TrialSpec, runs: Path, scored: int) -> None:
    """Save a record of plausible numbers, and what lies beside it."""
    random = np.random.default_rng(int(spec.id, 16))
    total, head = suite.params[spec.id]
    weights = random.bytes(32).hex()
    nll_N = random.gamma(1.5, 3.2, size=scored + 1).astype(np.float32)
    nll_N[0] = math.nan
    ppl = math.exp(nll_N[1:].astype(np.float64).mean())
    curve = tuple(_points(ppl, random))
    record = TrialRecord(
        suite=suite.name,
        spec=spec,
        status="ok",
        metrics={
            "valid_ppl": curve[-1].valid_ppl,
            "test_ppl": ppl,
            "last_valid_ppl": curve[-1].valid_ppl,
            "last_test_ppl": ppl,
            "unigram_test_ppl": 278.08,
            "params_total": total,
            "params_head": head,
            "train_ms_per_batch": random.uniform(5, 20),
            "eval_ms_per_batch": random.uniform(1, 4),
            "train_minutes": sum(point.seconds for point in curve) / 60,
            "peak_memory_mib": random.uniform(400, 600),
            "best_epoch": EPOCHS,
            "scored_test_tokens": scored,
            "context_tokens": spec.train.seq_len,
            "state_carried": int(spec.backbone.name == "lstm"),
        },
        curve=curve,
        environment=_environment(),
        weights_sha256=weights,
        contents=Contents(corpus=suite.contents[str(spec.corpus)]),
    )
    place = records.save(record, runs).with_name(token_scores.FILE_NAME)
    count_N, offset_N = random.integers(0, 6_000, scored + 1), np.arange(-1, scored) % spec.train.seq_len
    offset_N[0] = -1
    token_scores.save(TokenScores(nll=nll_N, count=count_N, offset=offset_N), weights, place)
    if spec.seed == 1:
        timings.save(_timing(record), runs)


def _points(ppl: float, random: np.random.Generator) -> Iterator[CurvePoint]:
    """A curve that comes down to some percent above a perplexity."""
    for epoch in range(1, EPOCHS + 1):
        valid = ppl * (0.9 + 2.0 / epoch) * random.uniform(0.995, 1.005)
        yield CurvePoint(
            epoch=epoch, train_loss=math.log(valid) - 0.1, valid_ppl=valid, lr=7.0, seconds=random.uniform(5, 6)
        )


def _scored_tokens(suite: Suite) -> int:
    """Of the corpus' test split."""
    corpus = suite.trials[0].corpus
    return CORPORA.get(corpus.name)(**corpus.params).facts().num_tokens["test"] - 1


def _environment() -> Environment:
    return Environment(
        device="a processor",
        threads=1,
        load_average=0.5,
        shared=True,
        python="3.11.7",
        torch="2.13.0",
        harness="0.1.0",
        commit="0123456789ab",
        executor="ray",
        started="2026-01-02T03:04:05+00:00",
        finished="2026-01-02T03:08:05+00:00",
        matmul_route="onednn",
    )


def _timing(record: TrialRecord) -> Timing:
    names = ("train_ms_per_batch", "eval_ms_per_batch")
    return Timing(
        trial=record.id,
        weights_sha256=record.weights_sha256,
        metrics={name: 0.9 * record.metrics[name] for name in names} | {f"{name}_iqr": 0.1 for name in names},
        batches=60,
        rounds=3,
        passed="synthetic",
        device="a processor",
        threads=1,
        torch="2.13.0",
        commit="0123456789ab",
        taken="2026-01-02T04:04:05+00:00",
        busy=0.0,
        shared=False,
    )


def _run(command: str, folder: Path, trials: int) -> Cost:
    """One command in a process of its own. Raises RuntimeError with its last line when it fails."""
    environ = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent.parent)}
    with tempfile.TemporaryFile() as said:
        started = time.perf_counter()
        arguments = [sys.executable, "-m", "harness.cli", command, *COMMANDS[command][0]]
        process = subprocess.Popen(arguments, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
            raise RuntimeError(f"harness {command} on {trials} trials: {lines[-1]}")
    pages = [page.stat().st_size for page in folder.rglob("*.html")] if command == "report" else []
    page = max(pages) / 2**20 if pages else None
    return Cost(command=command, trials=trials, seconds=seconds, peak_mib=used.ru_maxrss / 1024, page_mib=page)


def _told(cost: Cost) -> str:
    return f"{cost.command} on {cost.trials:,} trials: {cost.seconds:.1f} s, {cost.peak_mib:.0f} MiB"


if __name__ == "__main__":
    main()
