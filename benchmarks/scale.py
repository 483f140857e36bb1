"""Time and memory of commands on many finished records: `python -m harness.benchmarks.scale`.

It makes results folders of synthetic finished trials, with valid records and plausible numbers: a curve of 40 epochs,
the scores of the test tokens, and an exclusive timing of the first trial of each row. No trial is trained. Then each
command runs in its own process, and its time and peak memory are measured.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from harness import cli, plan
from harness.benchmarks.record import Record, Rows, Values, about, save_with_table
from harness.benchmarks.tables import document, listed
from harness.plan.loaded_suite import Suite
from harness.plan.specs import TrialSpec
from harness.records import sidecars, store
from harness.records.record import Contents, CurvePoint, Environment, TrialRecord
from harness.records.sidecars import Timing, TokenScores
from harness.registry import CORPORA

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
# Command -> its arguments, and the limit of its seconds at 1,000 trials; None for no limit.
COMMANDS: dict[str, tuple[tuple[str, ...], float | None]] = {
    "plan": (("suites/scale.yaml",), 5),
    "table": (("suites/scale.yaml",), 5),
    "leaderboard": ((), 5),
    "report": (("suites/scale.yaml",), 20),
    "export": (("records.zip",), None),
    "import": (("records.zip", "--results", "imported"), None),
    "sync": ((), 60),
}
AT, PAGE_MIB = 1_000, 10  # the number of trials for which the limits hold; the limit for the page
MACHINE = {"device": "a processor", "threads": 1, "torch": "2.13.0", "commit": "0123456789ab"}
TIMES = {"started": "2026-01-02T03:04:05+00:00", "finished": "2026-01-02T03:08:05+00:00"}
ENVIRONMENT = Environment(
    **MACHINE,
    **TIMES,
    load_average=0.5,
    shared=True,
    python="3.11.7",
    harness="0.1.0",
    executor="ray",
    matmul_route="onednn",
)


class Cost(Values):
    """One command on one folder.

    Args:
        seconds: the elapsed time, which depends on the load of the machine.
        processor_seconds: the processor time.
        page_mib: the size of the largest page that it wrote; None if it wrote none.
    """

    command: str
    trials: int
    seconds: float
    processor_seconds: float
    peak_mib: float
    page_mib: float | None = None


class Costs(Record):
    """All commands on all folders, and the machine. `absent`: commands that an old record did not find."""

    stem = "scale"
    kind: Literal["scale"] = "scale"
    threads: None = None
    python: str
    absent: tuple[str, ...] = ()
    costs: tuple[Cost, ...]

    def tables(self) -> list[Rows]:
        """A row for each command on each folder."""
        limits = {command: limit for command, (_, limit) in COMMANDS.items() if limit is not None}
        columns = {
            "command": lambda cost: cost.command,
            "finished trials": lambda cost: f"{cost.trials:,}",
            "seconds": lambda cost: f"{cost.seconds:.1f}",
            "of the processor": lambda cost: f"{cost.processor_seconds:.1f}",
            "may take": lambda cost: (
                f"{limits[cost.command]:g}" if cost.trials == AT and cost.command in limits else "-"
            ),
            "peak MiB": lambda cost: f"{cost.peak_mib:.0f}",
            "page MiB": lambda cost: "-" if cost.page_mib is None else f"{cost.page_mib:.1f}",
        }
        return [listed(self.costs, columns)]

    def markdown(self) -> str:
        """The table with a description of the measurement."""
        return document(
            "What commands cost on many finished records,",
            f"Made by `python -m harness.benchmarks.scale --save`: synthetic records with curves of {EPOCHS} epochs, "
            f"scores of test tokens beside each, one process a command. A page may have {PAGE_MIB} MiB.",
            self,
            [f"Not there: {', '.join(self.absent)}."] if self.absent else [],
            "one run of each command",
            f"Python {self.python}",
        )


def make(folder: Path, trials: int) -> Suite:
    """Make a project folder with a suite of finished trials and its results.

    Raises: ValueError if the number of trials is not a multiple of ROWS.
    """
    seeds, over = divmod(trials, ROWS)
    if over or not seeds:
        raise ValueError(f"{trials} trials are not {ROWS} rows of equally many seeds")
    place = folder / "suites" / "scale.yaml"
    place.parent.mkdir(parents=True)
    text = SUITE.replace("SEEDS", ", ".join(map(str, range(1, seeds + 1)))).replace("EPOCHS", str(EPOCHS))
    place.write_text(text, encoding="utf-8")
    suite = plan.load(place)
    corpus = suite.trials[0].corpus
    scored = CORPORA.get(corpus.name)(**corpus.params).facts().num_tokens["test"] - 1
    for spec in suite.trials:
        _finish(suite, spec, store.runs_folder(folder / "results", suite.name), scored)
    return suite


def _finish(suite: Suite, spec: TrialSpec, runs: Path, scored: int) -> None:
    """Save a record with plausible numbers, its token scores and its timing."""
    random = np.random.default_rng(int(spec.id, 16))
    weights = random.bytes(32).hex()
    nll_N = random.gamma(1.5, 3.2, size=scored + 1).astype(np.float32)
    nll_N[0] = math.nan
    curve, metrics = _numbers(suite, spec, math.exp(nll_N[1:].astype(np.float64).mean()), random)
    record = TrialRecord(
        suite=suite.name,
        spec=spec,
        status="ok",
        metrics=metrics | {"scored_test_tokens": scored},
        curve=curve,
        environment=ENVIRONMENT,
        weights_sha256=weights,
        contents=Contents(corpus=suite.contents[str(spec.corpus)]),
    )
    place = store.save(record, runs).with_name(sidecars.TOKEN_NLL.file)
    count_N, offset_N = random.integers(0, 6_000, scored + 1), np.arange(-1, scored) % spec.train.seq_len
    offset_N[0] = -1
    sidecars.save_token_scores(TokenScores(nll=nll_N, count=count_N, offset=offset_N), weights, place)
    if spec.seed == 1:
        times = {name: 0.9 * metrics[name] for name in ("train_ms_per_batch", "eval_ms_per_batch")}
        taken = {"batches": 60, "rounds": 3, "pass_id": "synthetic", "taken": "2026-01-02T04:04:05+00:00"}
        found = times | {f"{name}_iqr": 0.1 for name in times}
        timing = Timing(
            **MACHINE, **taken, trial=record.id, weights_sha256=weights, metrics=found, busy=0, shared=False
        )
        sidecars.save_timing(timing, runs)


def _numbers(suite: Suite, spec: TrialSpec, ppl: float, random: np.random.Generator) -> tuple[tuple, dict]:
    """A curve that decreases to a few percent above a perplexity, and the metrics of a record."""
    total, head = suite.params[spec.id]
    curve = []
    for epoch in range(1, EPOCHS + 1):
        valid, seconds = ppl * (0.9 + 2.0 / epoch) * random.uniform(0.995, 1.005), random.uniform(5, 6)
        point = {"train_loss": math.log(valid) - 0.1, "valid_ppl": valid, "lr": 7.0, "seconds": seconds}
        curve.append(CurvePoint(epoch=epoch, **point))
    return tuple(curve), {
        "valid_ppl": valid,
        "test_ppl": ppl,
        "last_valid_ppl": valid,
        "last_test_ppl": ppl,
        "unigram_test_ppl": 278.08,
        "params_total": total,
        "params_head": head,
        "train_ms_per_batch": random.uniform(5, 20),
        "eval_ms_per_batch": random.uniform(1, 4),
        "train_minutes": sum(point.seconds for point in curve) / 60,
        "peak_memory_mib": random.uniform(400, 600),
        "best_epoch": EPOCHS,
        "context_tokens": spec.train.seq_len,
        "state_carried": int(spec.backbone.name == "lstm"),
    }


def measure(trials: list[int], commands: list[str]) -> Costs:
    """Measure every command on folders with the given numbers of trials."""
    machine, costs = about(torch.device("cpu")) | {"threads": None}, []
    for number in trials:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), number)
            for command in commands:
                cost = _run(command, Path(folder), number)
                costs.append(cost)
                line = f"{command} on {number:,} trials: {cost.seconds:.1f} s, {cost.peak_mib:.0f} MiB"
                print(line, file=sys.stderr, flush=True)
    return Costs(**machine, python=sys.version.split()[0], costs=tuple(costs))


def _run(command: str, folder: Path, trials: int) -> Cost:
    """Run one command in its own process. Raises RuntimeError with the last line of its output if it fails."""
    environ = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent.parent)}
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        arguments = [sys.executable, "-m", "harness.cli", command, *COMMANDS[command][0]]
        process = subprocess.Popen(arguments, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
            raise RuntimeError(f"harness {command} on {trials} trials: {lines[-1]}")
    pages = [page.stat().st_size for page in folder.rglob("*.html")] if command == "report" else []
    page = max(pages) / 2**20 if pages else None
    busy, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    return Cost(command=command, trials=trials, seconds=seconds, processor_seconds=busy, peak_mib=peak, page_mib=page)


def main(given: list[str] | None = None) -> None:
    """Measure, print the table, and with --save write it."""
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
    print(measured.markdown())
    for place in save_with_table(measured, Path("results")) if options.save else ():
        print(place)


if __name__ == "__main__":
    main()
