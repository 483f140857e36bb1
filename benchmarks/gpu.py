"""All measurements that need a GPU, in one command: `python -m harness.benchmarks.gpu --out DIR`.

    (first, always) a check of the code for GPUs on small batches
    head     forward and backward pass of heads as CUDA graphs: PTB, and GPT-2 small with 4,096 tokens
    step     whole training step, eager and as a CUDA graph
    memory   peak extra memory of a multi-facet head at 16,384 tokens

A part that fails is reported in the summary, and the others run. DIR gets summary.md and records.tar.gz. After
unpacking it beside suites/, `harness bench table` shows its measurements. With `--device cpu --tiny` everything runs in
seconds, with sizes that only test the command.
"""

import argparse
import gc
import sys
import tarfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from harness.benchmarks import comparisons, tables
from harness.benchmarks.record import loses, save
from harness.errors import HarnessError
from harness.execution import doctor
from harness.machine.environment import device_name, resolve_device

PARTS = ("head", "step", "memory")
STEPS = {"heads": ("softmax", "mos2", "mos5", "mos10", "mos15"), "precision": ("fp32", "tf32", "bf16")}
HEADS = {"heads": ("softmax", "mos5", "mos15"), "precision": ("fp32", "tf32", "bf16"), "graph": True}
FACETS = {"setting": "gpt2-small", "precision": ("fp32", "tf32", "bf16")}
MEASURED = (  # part, options of comparisons.comparison
    ("head", HEADS),
    ("head", {**FACETS, "tokens": 4096, "heads": ("softmax", "mos3", "mfs"), "graph": True}),
    ("step", STEPS),
    ("step", {**STEPS, "graph": True}),
    ("memory", {**FACETS, "tokens": 16_384, "heads": ("softmax", "mfs")}),
)
TINY = (
    ("head", {"setting": "tiny", "heads": ("softmax", "mos2"), "precision": ("fp32",)}),
    ("step", {"setting": "tiny", "heads": ("softmax", "mos2"), "precision": ("fp32",)}),
    ("memory", {"setting": "tiny", "heads": ("mfs",), "precision": ("bf16",), "tokens": 70}),
)
Part = Callable[[], tuple[str, bool]]


def main(given: list[str] | None = None) -> int:
    """Run the chosen parts. Return 1 if one failed, else 0."""
    options = _options(given)
    options.out.mkdir(parents=True, exist_ok=True)
    parts = [("check of the code for GPUs", partial(_checked, options))]
    for kind, what in TINY if options.tiny else MEASURED:
        if kind in options.parts:
            parts.append((f"{kind} {what.get('setting', 'ptb')}", partial(_measured, options, kind, what)))
    lines, failed = [], False
    for name, part in parts:
        started = time.monotonic()
        text, complete = _tried(name, part)
        gc.collect()
        torch.cuda.empty_cache()  # CUDA graphs keep memory that the next part may need; no effect without a GPU
        failed |= not complete
        lines += [text, f"{name}: {time.monotonic() - started:.0f} s\n"]
        print("\n".join(lines[-2:]), flush=True)
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


def _tried(name: str, part: Part) -> tuple[str, bool]:
    """What a part shows, and whether it is complete."""
    try:
        return part()
    except Exception as error:  # GPU time is limited: measure the other parts in any case
        text = str(error) if isinstance(error, HarnessError) else traceback.format_exc()
        return f"## {name}: FAILED\n\n{text}\n", False


def _checked(options: argparse.Namespace) -> tuple[str, bool]:
    """Check the code for GPUs on small batches. Return a sentence, and whether all of it is right."""
    device = resolve_device(options.device)
    wrong = doctor.faults(device)
    return f"The code for GPUs on {device_name(device)}: {'. '.join(wrong) or 'right on small batches'}.\n", not wrong


def _measured(options: argparse.Namespace, kind: str, what: dict) -> tuple[str, bool]:
    """Measure and save the record; return its table, and whether it was saved to results."""
    baselines, device = ("ours-chunked", "ours-stored", "published", "target-only"), resolve_device(options.device)
    (found,) = comparisons.measure(kind, device=device, impl=baselines, route="default", rounds=options.rounds, **what)
    place = options.results / "bench" / found.place
    lost = loses(found, place)
    save(found, options.out / place.name if lost else place)
    _, heading, rest = tables.markdown([found]).partition("## ")
    return heading + rest + (f"\nKept in {options.out} only: {lost}.\n" if lost else ""), not lost


if __name__ == "__main__":
    sys.exit(main())
