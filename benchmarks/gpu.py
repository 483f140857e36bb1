"""All measurements that need a GPU, in one command: `python benchmarks/gpu.py --out DIR`.

`harness doctor --gpu` first, a check of the code for GPUs on small batches; then heads at the sizes of Penn Treebank,
GPT-2 small, SmolLM2 and a model with d = 4,096 and V = 128,256, whole training steps, and the memory of a multi-facet
head. Each is a process of its own, so that one that fails is reported and the others run. DIR/summary.md has all that
they print. With `--tiny` all but the check runs on a CPU in seconds, at sizes that only test the command.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

EVERY = ("--precision", "fp32,tf32,bf16")
FACETS = ("--setting", "gpt2-small", *EVERY)
MEASURED = (
    ("head", *EVERY, "--heads", "softmax,mos5,mos15"),
    ("head", *FACETS, "--tokens", "4096", "--heads", "softmax,mos3,mfs"),
    ("head", *EVERY, "--setting", "smollm2", "--tokens", "4096"),
    ("head", *EVERY, "--setting", "llama-8b", "--tokens", "4096", "--heads", "softmax"),
    ("step", *EVERY, "--heads", "softmax,mos2,mos5,mos10,mos15"),
    ("memory", *FACETS, "--tokens", "16384", "--heads", "softmax,mfs"),
    ("backbone",),
)
SMALL = ("--setting", "tiny", "--heads", "softmax,mos2", "--precision", "fp32", "--device", "cpu", "--rounds", "1")
TINY = (("head", *SMALL), ("step", *SMALL), ("memory", *SMALL))


def main(given: list[str] | None = None) -> int:
    """Run all parts. Returns 1 if one failed, else 0."""
    parser = argparse.ArgumentParser(description="The measurements that need a GPU.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the summary")
    parser.add_argument("--tiny", action="store_true", help="small sizes on a CPU that only test the command")
    options = parser.parse_args(given)
    options.out.mkdir(parents=True, exist_ok=True)
    parts = [] if options.tiny else [("-m", "harness", "doctor", "--gpu")]
    for script, *arguments in TINY if options.tiny else MEASURED:
        parts.append((str(Path(__file__).with_name(f"{script}.py")), *arguments))
    lines, failed = [], False
    for part in parts:
        began = time.monotonic()
        done = subprocess.run([sys.executable, *part], capture_output=True, text=True, check=False)
        failed |= done.returncode != 0
        shown = done.stdout + (done.stderr if done.returncode else "")
        title = " ".join([Path(part[0]).name, *part[1:]]) + (": FAILED" if done.returncode else "")
        lines.append(f"## {title}\n\n{shown}\n{time.monotonic() - began:.0f} s\n")
        print(lines[-1], flush=True)
        (options.out / "summary.md").write_text("\n".join(lines), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
