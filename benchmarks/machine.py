"""The state of the machine before a measurement: free memory, and load by other processes."""

from pathlib import Path

import torch

from harness.machine.environment import cpus_available

MEMINFO = Path("/proc/meminfo")
UNKNOWN_MEMORY = 8 * 2**30  # assumed if the system does not report it


def free_memory(device: torch.device) -> int:
    """Return the number of bytes that can be allocated."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if not MEMINFO.exists():
        return UNKNOWN_MEMORY
    line = next(line for line in MEMINFO.read_text(encoding="ascii").splitlines() if line.startswith("MemAvailable"))
    return int(line.split()[1]) * 1024


def high_load(load_average: float, threads: int) -> list[str]:
    """Return a sentence if other processes leave fewer cores free than we use. A load of 0.25 is ignored as noise."""
    cores = cpus_available()
    if load_average <= cores - threads + 0.25:
        return []
    return [f"load {load_average:.2f} at the start on {cores} cores, of which this measurement uses {threads}"]
