"""Trains a fixed set of trials and writes what must not change when code is moved or redesigned: ids, weights, scores.

    python tests/meta/golden.py write FILE      before a change
    python tests/meta/golden.py compare FILE    after it: exit code 1 and the differences, where there are any

Bits differ between machines and builds of torch: write and compare on one machine. `--full` trains
suites/gpt2_tiny_heads.yaml for all its epochs (20 minutes on 2 cores; without it the whole script takes about 5).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
SHORT = "train.epochs=0.1"  # of gpt2_tiny_heads, without --full
TIMES = ("_ms_", "minutes", "memory", "per_second", "tokens_per")  # parts of the names of metrics that are no scores
PATIENCE = 3000.0  # seconds for one command

HEADS = """\
  - softmax
  - {sigsoftmax: {bias: false}}
  - gss
  - {plif: {num_pieces: 10}}
  - {nce: {num_noise: 5, log_normaliser: 2.0}}
  - {moc: {num_mixtures: 2}}
  - {mos: {num_mixtures: 3, dropout: 0.2}}
  - {doc: {components: {top: 2, second: 1}}}
  - doc_poster
  - {mfs: {num_partitions: 2, window: 1}}
  - mixtape"""
TEXT = """\
name: {name}
version: 1
corpora: [{{markov: {{vocab_size: 12, num_tokens: 3000, branching: 3}}}}]
backbones:
  - {{lstm: {{d_model: 8, num_layers: 3, dropout: 0.1}}}}
  - {{gpt2: {{d_model: 8, num_layers: 3, num_heads: 2, dropout: 0.1}}}}
heads:
{heads}
train: {{{train}, epochs: 3, batch_size: 4, seq_len: 7}}
checkpoint: {{minutes: 0.001}}
seeds: [1]
measure: {{exclusive: false}}
"""
SUITES = {
    "stream": TEXT.format(name="stream", heads=HEADS, train="optimizer: sgd, momentum: 0.9, lr: 0.5, clip: 0.25"),
    "blocks": TEXT.format(
        name="blocks", heads=HEADS, train="optimizer: adamw, lr: 0.01, batching: blocks, shuffle: true"
    ),
    "parallel": TEXT.format(
        name="parallel",
        heads="  - softmax\n  - {mos: {num_mixtures: 3, dropout: 0.2}}",
        train="optimizer: adam, lr: 0.01, batching: blocks, data_parallel: 2",
    ),
}  # fmt: skip
CASES = ("quickstart", "gpt2_tiny_heads", *SUITES)


def command(suite: Path, results: Path, *options: str) -> list[str]:
    """`harness run` of a suite, without all that is not a result."""
    fixed = ("--results", str(results), "--no-tracking", "--no-timing", "--device", "cpu")
    return [sys.executable, "-m", "harness.cli", "run", str(suite), *fixed, *options]


def started(arguments: list[str]) -> subprocess.Popen:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen) -> None:
    """Wait for a command. Raises SystemExit with what it wrote to standard error, where it failed."""
    _, err = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise SystemExit(f"{' '.join(process.args)} ended with {process.returncode}: {err.decode()}")


def kill_within_an_epoch(process: subprocess.Popen, runs: Path) -> None:
    """Send SIGKILL once there is a checkpoint made within an epoch. Raises SystemExit when there is none in time."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        steps = [int(place.stem.split("-")[2]) for place in runs.glob("*/checkpoint-*.pt")]
        if any(steps):
            process.kill()
            process.communicate()
            return
        time.sleep(0.002)
    raise SystemExit("the run ended before a checkpoint within an epoch was seen")


def results_of(runs: Path) -> dict[str, Any]:
    """Trial id -> what must not change."""
    found = {}
    for place in sorted(runs.glob("*/record.json")):
        record = json.loads(place.read_text())
        metrics = {name: x for name, x in record["metrics"].items() if not any(part in name for part in TIMES)}
        curve = [[point.get(name) for name in ("epoch", "train_loss", "valid_ppl", "lr")] for point in record["curve"]]
        found[place.parent.name] = {
            "head": record["spec"]["head"],
            "status": record["status"],
            "message": record["message"],
            "weights_sha256": record["weights_sha256"],
            "metrics": metrics,
            "curve": curve,
            "certified": record.get("certificate") is not None,  # its places are drawn anew for each trial
        }
    return found


def run(suite: Path, folder: Path, *options: str, killed: bool = False) -> dict[str, Any]:
    """The results of a suite; with `killed`, of a run that goes on from a checkpoint within an epoch."""
    results = folder / f"results-{suite.stem}-{killed}"
    runs = results / "runs" / suite.stem
    arguments = command(suite, results, *options)
    if killed:
        kill_within_an_epoch(started(arguments), runs)
    finish(started(arguments))
    if killed:
        sessions = [json.loads(place.read_text())["environment"]["sessions"] for place in runs.glob("*/record.json")]
        if max(sessions) < 2:
            raise SystemExit("no trial of the killed run went on from its checkpoint")
    return results_of(runs)


def golden(folder: Path, only: list[str], *, full: bool) -> dict[str, Any]:
    """Name of a case -> its results."""
    cases = {}
    for name in ("quickstart", "gpt2_tiny_heads"):
        if name in only:
            short = ("--set", SHORT) if name == "gpt2_tiny_heads" and not full else ()
            cases[name] = run(ROOT / "suites" / f"{name}.yaml", folder, *short)
    for name, text in SUITES.items():
        if name not in only:
            continue
        place = folder / f"{name}.yaml"
        place.write_text(text)
        executor = ("--executor", "ray" if name == "parallel" else "inline")
        cases[name] = run(place, folder, *executor)
        if name != "parallel":
            resumed = cases[f"{name}, resumed within an epoch"] = run(place, folder, *executor, killed=True)
            if lines := differences(cases[name], resumed):
                raise SystemExit("\n".join([f"{name}: the resumed run has other results", *lines]))
    return cases


def differences(before: Any, now: Any, place: str = "") -> list[str]:
    """One line for each value that differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = sorted({*before, *now})
        return [line for name in names for line in differences(before.get(name), now.get(name), f"{place}/{name}")]
    return [] if before == now else [f"{place}: {before} became {now}"]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--only", nargs="*", default=[*CASES], help="names of cases: quickstart, gpt2_tiny_heads, stream ..."
    )
    parser.add_argument("--full", action="store_true", help="gpt2_tiny_heads for all its epochs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = golden(Path(folder), options.only, full=options.full)
    count = sum(map(len, found.values()))
    if options.action == "write":
        options.file.write_text(json.dumps(found, indent=1))
        print(f"{count} trials written to {options.file}")
        return
    before = {name: of for name, of in json.loads(options.file.read_text()).items() if name in found}
    lines = differences(before, json.loads(json.dumps(found)))
    print("\n".join([*lines, f"{count} trials compared, {len(lines)} values differ"]))
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
