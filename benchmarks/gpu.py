"""All measurements that need a GPU, in one command: `python -m harness.benchmarks.gpu --out DIR`.

    (first, always) a check of the code for GPUs on small batches
    head     forward and backward pass of heads as CUDA graphs: PTB, and GPT-2 small with 4,096 tokens
    step     whole training step, eager and as a CUDA graph
    memory   peak extra memory of a multi-facet head at 16,384 tokens
    suite    the trials of a suite, one process for each head, all at the same time. Finished trials are skipped, so the
             command can be repeated to continue

A part that fails is reported in the summary, and the others run. DIR gets summary.md, the logs of the processes, and
records.tar.gz. After unpacking it beside suites/, `harness bench table` and `harness table` show its measurements. With
`--device cpu --tiny` everything runs in seconds, with sizes that only test the command.
"""

import argparse
import gc
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from harness import plan
from harness.benchmarks import memory, speed, tables
from harness.benchmarks.cells import checked_impls, checked_ways
from harness.benchmarks.measurement import Kind, Measurement, loses, save, slug
from harness.benchmarks.settings import setting_of
from harness.benchmarks.speed import Comparison
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError, HarnessError
from harness.execution import doctor
from harness.machine.environment import device_name, resolve_device
from harness.plan.specs import TrialSpec
from harness.records import store

PARTS = ("head", "step", "memory", "suite")
SHOWN_METRICS = ("train_minutes", "train_ms_per_batch", "valid_ppl", "test_ppl", "peak_memory_mib")
GRACE_SECONDS = 20  # the time for a process to end after SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One comparison to measure."""

    kind: Kind
    setting: str = "ptb"
    tokens: int | None = None
    heads: tuple[str, ...]
    precisions: tuple[str, ...]
    graph: bool = False


STEP_HEADS = ("softmax", "mos2", "mos5", "mos10", "mos15")
FACETS = {"setting": "gpt2-small", "precisions": ("fp32", "tf32", "bf16")}
BENCHES = (
    Bench(kind="head", heads=("softmax", "mos5", "mos15"), precisions=("fp32", "tf32", "bf16"), graph=True),
    Bench(kind="head", tokens=4096, heads=("softmax", "mos3", "mfs"), graph=True, **FACETS),
    Bench(kind="step", heads=STEP_HEADS, precisions=("fp32", "tf32", "bf16")),
    Bench(kind="step", heads=STEP_HEADS, precisions=("fp32", "tf32", "bf16"), graph=True),
    Bench(kind="memory", tokens=16_384, heads=("softmax", "mfs"), **FACETS),
)
TINY_BENCHES = (
    *(Bench(kind=kind, setting="tiny", heads=("softmax", "mos2"), precisions=("fp32",)) for kind in ("head", "step")),
    Bench(kind="memory", setting="tiny", heads=("mfs",), precisions=("bf16",)),
)
TINY_SUITE = """\
name: gpu_tiny
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1}}]
heads: [softmax, {mos: {num_mixtures: 2}}]
train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}
seeds: [1]
"""


def main(given: list[str] | None = None) -> int:
    """Run the chosen parts. Return 1 if one failed or the suite is not finished, else 0."""
    options = _options(given)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.tiny:
        options.suite = options.out / "gpu_tiny.yaml"
        options.suite.write_text(TINY_SUITE, encoding="utf-8")
    deadline, lines, failed = time.monotonic() + options.budget, [], False
    work = [("check of the code for GPUs", lambda: _checked(options))]
    work += [(f"{bench.kind} {bench.setting}", _measured(bench, options)) for bench in _benches(options)]
    if "suite" in options.parts:
        work.append((f"suite {options.suite.name}", lambda: _trained(options, deadline)))
    for name, part in work:
        started = time.monotonic()
        try:
            text, complete = part()
        except Exception as error:  # GPU time is limited: measure the other parts in any case
            text = str(error) if isinstance(error, HarnessError) else traceback.format_exc()
            text, complete = f"## {name}: FAILED\n\n{text}\n", False
        gc.collect()
        torch.cuda.empty_cache()  # CUDA graphs keep memory that the next part may need; no effect without a GPU
        failed |= not complete
        lines += [text, f"{name}: {time.monotonic() - started:.0f} s\n"]
        print("\n".join(lines[-2:]), flush=True)
        (options.out / "summary.md").write_text("\n".join(lines), encoding="utf-8")
    _pack(options)
    return 1 if failed else 0


def _options(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m harness.benchmarks.gpu", description="The measurements that need a GPU."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the summary and the packed records")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of records and tables")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds after which the suite's trials are ended")
    parser.add_argument("--suite", type=Path, default=Path("suites/ptb_mixtures.yaml"))
    parser.add_argument("--seeds", default="1", help="seeds of the suite's trials, separated by commas")
    parser.add_argument("--set", action="append", default=[], dest="overrides", help="as in harness run")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of the corpora's files")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small sizes that only test the command")
    options = parser.parse_args(given)
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"--parts {part}: expected {', '.join(PARTS)}")
    return options


def _benches(options: argparse.Namespace) -> list[Bench]:
    return [bench for bench in (TINY_BENCHES if options.tiny else BENCHES) if bench.kind in options.parts]


def _checked(options: argparse.Namespace) -> tuple[str, bool]:
    """Check the code for GPUs on small batches. Return a sentence, and whether all of it is right."""
    device = resolve_device(options.device)
    wrong = doctor.faults(device)
    return f"The code for GPUs on {device_name(device)}: {'. '.join(wrong) or 'right on small batches'}.\n", not wrong


def _measured(bench: Bench, options: argparse.Namespace) -> Callable[[], tuple[str, bool]]:
    """Return a function that measures, saves the record, and returns the table and whether it was saved to results."""

    def measure() -> tuple[str, bool]:
        device = resolve_device(options.device)
        compared = Comparison(
            setting=setting_of(bench.setting, device, bench.tokens),
            device=device,
            heads=bench.heads,
            impls=checked_impls(("published", "target-only"), compile_too=False),
            ways=checked_ways(bench.precisions, "default", device),
            rounds=options.rounds,
            graph=bench.graph,
        )
        found = memory.measure(compared) if bench.kind == "memory" else speed.measure(bench.kind, compared)
        place = options.results / "bench" / slug(found.device) / found.file_name
        lost = loses(found, place)
        save(found, options.out / place.name if lost else place)
        return _table(found) + (f"\nKept in {options.out} only: {lost}.\n" if lost else ""), not lost

    return measure


def _table(found: Measurement) -> str:
    _, heading, rest = tables.markdown([found]).partition("## ")
    return heading + rest


def _trained(options: argparse.Namespace, deadline: float) -> tuple[str, bool]:
    """Train the heads of a suite in parallel until the deadline.

    Return a line for each trial, and whether all finished.
    """
    suite = plan.load(options.suite, tuple(options.overrides))
    seeds = set(options.seeds.split(","))
    wanted = [trial for trial in suite.trials if str(trial.seed) in seeds]
    if not wanted:
        raise ExecutionError(f"--seeds {options.seeds}: {options.suite} has no trial of these")
    started = time.monotonic()
    groups = _by_head(wanted)
    processes = [_started(options, number, ids, shared=len(groups) > 1) for number, ids in enumerate(groups)]
    _wait(processes, deadline)
    found, _ = store.load_all(store.runs_folder(options.results, suite.name), [trial.id for trial in wanted])
    lines = [f"## {suite.name}: {time.monotonic() - started:.0f} s of wall time, {len(processes)} processes\n"]
    for trial in wanted:
        record = found.get(trial.id)
        metrics = record.metrics if record is not None else {}
        shown = ", ".join(f"{name} {metrics[name]:.2f}" for name in SHOWN_METRICS if name in metrics)
        lines.append(f"- {trial}: {record.status if record is not None else 'not finished'} {shown}")
    arguments = ("table", str(options.suite), *_common(options))
    subprocess.run([sys.executable, "-m", "harness.cli", *arguments], check=False, stdout=subprocess.DEVNULL)
    return "\n".join(lines) + "\n", len(found) == len(wanted)


def _by_head(trials: list[TrialSpec]) -> list[list[str]]:
    """Return the trial ids of each head. The largest mixture is first, because it takes the longest time."""
    ids: dict[str, list[str]] = {}
    for trial in sorted(trials, key=lambda trial: -trial.head.params.get("num_mixtures", 1)):
        ids.setdefault(str(trial.head), []).append(trial.id)
    return list(ids.values())


def _common(options: argparse.Namespace) -> list[str]:
    sets = [part for override in options.overrides for part in ("--set", override)]
    return [*sets, "--results", str(options.results), "--data", str(options.data)]


def _started(options: argparse.Namespace, number: int, ids: list[str], *, shared: bool) -> subprocess.Popen:
    only = [part for trial in ids for part in ("--only", f"id={trial}")]
    how = ["--executor", "inline", "--no-tracking", "--device", options.device]
    how += ["--shared"] if shared else []
    command = [sys.executable, "-m", "harness.cli", "run", str(options.suite), *_common(options), *how, *only]
    with (options.out / f"trials_{number}.log").open("w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def _wait(processes: list[subprocess.Popen], deadline: float) -> None:
    """Wait until all processes have ended; end them at the deadline."""
    while time.monotonic() < deadline and any(process.poll() is None for process in processes):
        time.sleep(0.2)
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _pack(options: argparse.Namespace) -> None:
    """Pack measurements, records, logs and tables. Weights and databases are left out because they are large."""
    patterns = ("bench/*/*.json", f"runs/*/*/{store.FILE_NAME}", "runs/*/*/*.log", "tables/*.md")
    with tarfile.open(options.out / "records.tar.gz", "w:gz") as packed:
        for path in sorted(path for pattern in patterns for path in options.results.glob(pattern)):
            packed.add(path, Path("results") / path.relative_to(options.results))


if __name__ == "__main__":
    sys.exit(main())
