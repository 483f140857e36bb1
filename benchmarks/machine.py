"""Whether this machine can be measured on: memory that is free, load of others."""

from pathlib import Path

import torch

from harness.machine.environment import cpus_available

MEMINFO = Path("/proc/meminfo")
UNKNOWN_MEMORY = 8 * 2**30  # assumed where the system does not tell


def free_memory(device: torch.device) -> int:
    """Bytes that could still be allocated."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if not MEMINFO.exists():
        return UNKNOWN_MEMORY
    line = next(line for line in MEMINFO.read_text(encoding="ascii").splitlines() if line.startswith("MemAvailable"))
    return int(line.split()[1]) * 1024


def high_load(load_average: float, threads: int) -> list[str]:
    """A sentence when others leave fewer cores than we use. A quarter of a core is a system's own noise."""
    cores = cpus_available()
    if load_average <= cores - threads + 0.25:
        return []
    return [f"load {load_average:.2f} at the start on {cores} cores, of which {threads} are to be ours"]
