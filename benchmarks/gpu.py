"""All measurements that need a GPU, in one command: `python -m harness.benchmarks.gpu --out DIR`.

    (first, always) harness doctor --gpu, a check of the code for GPUs on small batches
    head     forward and backward pass of heads as CUDA graphs: PTB; 4,096 tokens of GPT-2 small, of SmolLM2 and of a
             model with d = 4,096, V = 128,256
    step     whole training step, eager and as a CUDA graph
    memory   peak extra memory of a multi-facet head at 16,384 tokens

Each is a command of the harness in a process of its own, so that one that fails is reported and the others run. DIR
gets summary.md, with all that they print, the raw numbers of each, and records.tar.gz: after unpacking it beside
suites/, `harness bench table` shows its measurements. With `--device cpu --tiny` all but the check runs in seconds,
with sizes that only test the command.
"""

import argparse
import subprocess
import sys
import tarfile
import time
from pathlib import Path

PARTS = ("head", "step", "memory")
BASELINES = ("--impl", "ours-chunked,ours-stored,published,target-only,torch,liger", "--route", "default", "--save")
EVERY = ("--precision", "fp32,tf32,bf16")
STEPS = ("--heads", "softmax,mos2,mos5,mos10,mos15", *EVERY)
FACETS = ("--setting", "gpt2-small", *EVERY)
MEASURED = (  # options of `harness bench`
    ("head", "--heads", "softmax,mos5,mos15", *EVERY, "--graph"),
    ("head", *FACETS, "--tokens", "4096", "--heads", "softmax,mos3,mfs", "--graph"),
    ("head", "--setting", "smollm2", *EVERY, "--graph"),
    ("head", "--setting", "llama-8b", "--heads", "softmax", *EVERY, "--graph"),
    ("step", *STEPS),
    ("step", *STEPS, "--graph"),
    ("memory", *FACETS, "--tokens", "16384", "--heads", "softmax,mfs"),
)
TINY = (
    ("head", "--setting", "tiny", "--heads", "softmax,mos2", "--precision", "fp32"),
    ("step", "--setting", "tiny", "--heads", "softmax,mos2", "--precision", "fp32"),
    ("memory", "--setting", "tiny", "--heads", "mfs", "--precision", "bf16", "--tokens", "70"),
)


def main(given: list[str] | None = None) -> int:
    """Run the chosen parts. Return 1 if one failed, else 0."""
    options = _options(given)
    options.out.mkdir(parents=True, exist_ok=True)
    parts = [["doctor", "--gpu", "--results", options.results]] if options.device == "cuda" else []
    for number, (kind, *what) in enumerate(TINY if options.tiny else MEASURED):
        if kind in options.parts:
            rounds = [] if kind == "memory" else ["--rounds", options.rounds]
            written = ["--json", options.out / f"{number}_{kind}.json", "--results", options.results]
            parts.append(["bench", kind, *what, *BASELINES, *rounds, *written, "--device", options.device])
    lines, failed = [], False
    for part in parts:
        command, started = [sys.executable, "-m", "harness", *map(str, part)], time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        failed |= done.returncode != 0
        title = " ".join(command[2:]) + (": FAILED" if done.returncode else "")
        shown = done.stdout + (done.stderr if done.returncode else "")
        lines.append(f"## {title}\n\n```\n{shown}```\n\n{time.monotonic() - started:.0f} s\n")
        print(lines[-1], flush=True)
        (options.out / "summary.md").write_text("\n".join(lines), encoding="utf-8")
    with tarfile.open(options.out / "records.tar.gz", "w:gz") as packed:
        for path in sorted(options.results.glob("bench/*/*.json")):
            packed.add(path, Path("results") / path.relative_to(options.results))
    return 1 if failed else 0


def _options(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m harness.benchmarks.gpu", description="The measurements that need a GPU."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the summary and the packed records")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of records and tables")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small sizes that only test the command")
    options = parser.parse_args(given)
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"--parts {part}: expected {', '.join(PARTS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
