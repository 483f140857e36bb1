"""`bench memory`: the peak memory of a head's step beyond weights, inputs and gradients.

Each cell has a new process.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from harness.benchmarks.cells import COMPILED, IMPLEMENTATIONS, OURS, Cell, arithmetic, lacks
from harness.benchmarks.measurement import CellValues, Measurement, about
from harness.benchmarks.settings import SETTINGS, Setting, setting_of
from harness.benchmarks.speed import Comparison
from harness.benchmarks.workloads import HeadPass
from harness.errors import ExecutionError
from harness.machine import environment
from harness.training.clocks import peak_memory_mib, reset_peak_memory


def measure(compared: Comparison, report: Callable[[str], None] = lambda line: None) -> Measurement:
    """Measure the MiB of every cell. `compiled` is left out, because it would include the memory of the compiler."""
    setting, device = compared.setting, compared.device
    fields, cells = about(setting, device, compared.threads), []
    for head in compared.heads:
        with torch.no_grad():
            mixture = HeadPass(setting, head, device).distribution()
        wanted = [Cell(head, impl, *way) for impl in compared.impls if impl != COMPILED for way in compared.ways]
        reasons = {cell: lacks(cell, mixture, setting) for cell in wanted}
        del mixture
        for cell, reason in reasons.items():
            report(f"measuring {cell}")
            found = {"lacking": reason} if reason else _in_fresh_process(cell, setting, device, compared.threads)
            cells.append(CellValues(**asdict(cell), **found))
    return Measurement(kind="memory", **fields, rounds=1, graph=False, cells=tuple(cells))


def extra_mib(cell: Cell, setting: Setting, device: torch.device) -> float:
    """Measure the peak of one pass above the memory before it, in this process, which must be a new one.

    Weights, inputs and all gradients are in memory before the pass. A pass of a tiny setting has initialised libraries.

    Raises: ExecutionError if the system cannot reset the counter of the peak.
    """
    make, _ = IMPLEMENTATIONS[cell.impl]
    evaluation = None if make is None else make()
    with arithmetic(cell, device):
        HeadPass(SETTINGS["tiny"], cell.head, device).run(evaluation)
        workload = HeadPass(setting, cell.head, device)
        for leaf in workload.leaves():
            leaf.grad = torch.zeros_like(leaf)
        reset_peak_memory(device)
        before = peak_memory_mib(device)
        if device.type == "cpu" and before > 1.01 * resident_mib():
            raise ExecutionError("bench memory: this system does not reset a process' peak (/proc/self/clear_refs)")
        workload.accumulate(evaluation)
        return peak_memory_mib(device) - before


def _in_fresh_process(cell: Cell, setting: Setting, device: torch.device, threads: int) -> dict[str, Any]:
    """Return fields of CellValues. For a baseline that fails they are a reason. Raises ExecutionError if ours fails."""
    asked = {"cell": asdict(cell), "setting": setting.name, "tokens": setting.tokens, "device": device.type}
    command = [sys.executable, "-m", "harness.benchmarks.memory", json.dumps({**asked, "threads": threads})]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return {"values": (float(done.stdout),)}
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    if cell.impl == OURS:
        raise ExecutionError(f"bench memory: {cell}: {lines[-1]}")
    return {"lacking": f"failed: {lines[-1].partition(':')[0]}"}


def resident_mib() -> float:
    """Return the resident memory of this process, in the same units and from the same source as its peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def main(asked: dict) -> None:
    """Measure the cell that the parent process asked for, and print the result."""
    device = torch.device(asked["device"])
    setting = setting_of(asked["setting"], device, asked["tokens"])
    with environment.torch_threads(asked["threads"]):
        print(extra_mib(Cell(**asked["cell"]), setting, device))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
