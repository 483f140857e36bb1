"""Named random streams that are derived from one seed.

Two trials of one seed that differ only in the head have the same backbone initialisation, data order and dropout masks
of the backbone, so their results can be compared in pairs.

Streams: 'backbone' and 'head' for initialisation; 'output' within 'head' for the output matrix and its bias, so that
all heads with an output matrix of one shape start with the same one; 'data' for the order of segments or blocks;
'columns' for where the columns of the training stream begin; 'dropout' for the masks; 'python' and 'numpy' for plug-ins
that draw from these generators. The dropout stream starts again at every step, because the number of the step is part
of its name. The backbone runs first in a step, so its masks are the same under every head.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def stream_seed(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed for the stream called `names`: the first bits of a SHA-256.

    It is the same on every machine.
    """
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@contextmanager
def seeded(seed: int, *names: str | int) -> Iterator[None]:
    """Set torch's global CPU generator to a stream within the block, and restore its state afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, *names))
        yield


@contextmanager
def substream(*names: str | int) -> Iterator[None]:
    """Set torch's global CPU generator to a stream of the current stream within the block, and restore it afterwards.

    It is derived from the number that the generator was last seeded with. So it does not depend on what was drawn since
    then, and the draws within the block do not change those after it. A second block of the same names draws the same.
    """
    with seeded(torch.initial_seed(), *names):
        yield


@contextmanager
def own_generators(seed: int, device: torch.device) -> Iterator[None]:
    """Set every global random generator to the start of its own stream within the block, and restore them afterwards.

    The generators are those of Python, numpy, and torch on the CPU and on `device`.
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
    """Return the states of all global generators, as tensors and plain values."""
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
    """Set all global generators to states from `generator_states`.

    The generator of a GPU is set if `device` is a GPU and `states` has a state for it.
    """
    random.setstate(states["python"])
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"].cpu())
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"].cpu(), device)
