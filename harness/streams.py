"""Named random streams of a seed: trials of one seed differ only by what their specs differ in, so heads pair.

Streams: 'backbone' and 'head' for initialisation, 'data' for the order of blocks, 'dropout' for the masks. The dropout
stream is opened anew at every step (`step` is part of its name). The backbone runs first in a step, so its masks are
the same under every head, and a resumed trial needs no generator state.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

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
