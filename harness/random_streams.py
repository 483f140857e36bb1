"""Named random streams of a seed: trials of one seed differ only by what their specs differ in, so heads pair.

Streams: 'backbone' and 'head' for initialisation, 'data' for the order of blocks, 'dropout' for the masks, 'python' and
'numpy' for what a plug-in may draw from those. The dropout stream is opened anew at every step (`step` is part of its
name). The backbone runs first in a step, so its masks are the same under every head.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def stream_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream called `names`, the same on every machine: a prefix of SHA-256."""
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@contextmanager
def seeded(seed: int, *names: str | int) -> Iterator[None]:
    """Run a block with torch's global CPU generator set to a stream, and put it back as it was afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, *names))
        yield


@contextmanager
def own_generators(seed: int, device: torch.device) -> Iterator[None]:
    """Run a block with every global generator (Python's, numpy's, torch's of the CPU and of `device`) at the start of a
    stream of its own, and put them back as they were afterwards.
    """
    before = generator_states(device)
    random.seed(stream_seed(seed, "python"))
    np.random.seed(stream_seed(seed, "numpy") % 2**32)
    torch.manual_seed(stream_seed(seed, "torch"))
    try:
        yield
    finally:
        set_generator_states(before, device)


def generator_states(device: torch.device) -> dict[str, Any]:
    """The states of all global generators, as tensors and plain values."""
    name, keys, *rest = np.random.get_state()
    states = {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(keys.astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_generator_states(states: dict[str, Any], device: torch.device) -> None:
    """Set all global generators to what `generator_states` gave; the GPU's only where both have one."""
    random.setstate(states["python"])
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"].cpu())
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"].cpu(), device)
