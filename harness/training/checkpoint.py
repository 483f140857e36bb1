"""Checkpoints: all that a trial needs to go on as if nothing had happened, and weights, on disk.

A file is torch's archive of tensors and plain values with its SHA-256 behind it: torch.load and safetensors alike load
a flipped bit in silence. Nothing in a file is ever executed (`weights_only=True`). A trial's folder holds

    checkpoint-000003-00000120-000002.pt   in epoch 3, after 120 steps of it, epoch 2 the best so far; the last two
    best-000002.pt                         the weights of the best epoch, kept while a checkpoint names it
    best.pt                                the same once the trial is finished
"""

import hashlib
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from harness.errors import Damaged
from harness.machine.files import atomically

BEST = "best.pt"  # weights of the best epoch by validation, beside the record
PATTERN, BEST_PATTERN = "checkpoint-*.pt", "best-*.pt"
KEPT = 2
SEAL = b"sha256:"  # before the 32 bytes of the digest, at the end of a file
SEALED = len(SEAL) + 32
NO_BEST = "none"  # in the place of the best epoch, before the first is through


def save(content: dict[str, Any], place: Path) -> None:
    """Write tensors and plain values atomically, sealed. Raises StorageError when the place cannot be written."""
    with atomically(place) as file:
        hashed = _Hashed(file)
        try:
            torch.save(content, hashed)
        except RuntimeError:  # torch's word for a write that failed
            if hashed.fault is None:
                raise
            raise hashed.fault from None
        file.write(SEAL + hashed.digest.digest())


def load(place: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `save` wrote, its tensors on `device`.

    Raises: Damaged when there is nothing, or not what was written: truncated, a bit flipped, another file altogether,
    or one that holds more than tensors and plain values.
    """
    try:
        content, seal = _parts(place)
        if seal != SEAL + hashlib.sha256(content).digest():
            raise Damaged(f"{place}: its SHA-256 does not fit its content")
        return torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    except Damaged:
        raise
    except Exception as cause:  # whatever torch makes of a file that is none of ours
        raise Damaged(f"{place}: no checkpoint ({type(cause).__name__}: {str(cause).partition(chr(10))[0]})") from cause


def ends_with_seal(place: Path) -> bool:
    """Whether a file is there and has an end as `save` wrote it. It reads a few bytes: a missing file, an empty one and
    one that was cut off are found, a flipped bit is not; `load` finds that.
    """
    try:
        with place.open("rb") as file:
            file.seek(-SEALED, os.SEEK_END)
            return file.read(len(SEAL)) == SEAL
    except OSError:  # there is none, or it is shorter than a seal
        return False


def load_weights(place: Path, device: torch.device | str) -> dict[str, Tensor]:
    """A state dict that was saved as {'weights': ...}. Raises Damaged."""
    return load(place, device)["weights"]


def weights_sha256(weights: dict[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes, in the order of names: equal weights, equal digest."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Checkpoints:
    """The checkpoints of one trial.

    Args:
        folder: the trial's own.
        tell: hears of files that are damaged.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None] = lambda message: None):
        self.folder, self.tell = folder, tell

    def newest(self) -> dict[str, Any] | None:
        """The newest checkpoint that is whole and whose best weights are; None when there is none."""
        for place in self._places():
            try:
                state = load(place)
                if state.get("best_epoch") is not None:
                    self.best_weights(state["best_epoch"], "cpu")
            except Damaged as damaged:
                self.tell(f"{damaged}; an older checkpoint is used, or none")
                continue
            return state
        return None

    def save(self, state: dict[str, Any], epoch: int, step: int) -> None:
        """Keep a state; of the older ones the newest stays, and the best weights that either names."""
        best = NO_BEST if state["best_epoch"] is None else f"{state['best_epoch']:06}"
        save(state, self.folder / f"checkpoint-{epoch:06}-{step:08}-{best}.pt")
        kept, outdated = self._places()[:KEPT], self._places()[KEPT:]
        named = {f"best-{place.stem.rpartition('-')[2]}.pt" for place in kept}
        for place in [*outdated, *(each for each in self.folder.glob(BEST_PATTERN) if each.name not in named)]:
            place.unlink()

    def save_best(self, weights: dict[str, Tensor], epoch: int) -> None:
        """Keep the weights of the best epoch so far."""
        save({"weights": weights}, self._best_place(epoch))

    def best_weights(self, epoch: int, device: torch.device | str) -> dict[str, Tensor]:
        """The weights kept for an epoch. Raises Damaged."""
        return load_weights(self._best_place(epoch), device)

    def publish_best(self, epoch: int) -> None:
        """The weights kept for an epoch become best.pt; the file they were in stays."""
        with atomically(self.folder / BEST) as file, self._best_place(epoch).open("rb") as kept:
            shutil.copyfileobj(kept, file)

    def remove(self) -> None:
        """Remove all checkpoints, and the best weights but for best.pt."""
        for place in [*self.folder.glob(PATTERN), *self.folder.glob(BEST_PATTERN)]:
            place.unlink()

    def _places(self) -> list[Path]:
        """Newest first."""
        return sorted(self.folder.glob(PATTERN), reverse=True)

    def _best_place(self, epoch: int) -> Path:
        return self.folder / f"best-{epoch:06}.pt"


class _Hashed(io.RawIOBase):
    """Writes through to a file and hashes what passes; remembers the fault that torch makes a RuntimeError of."""

    def __init__(self, file: BinaryIO):
        super().__init__()
        self.file, self.digest, self.fault = file, hashlib.sha256(), None

    def writable(self) -> bool:
        return True

    def write(self, content) -> int:
        try:
            self.file.write(content)
        except OSError as fault:
            self.fault = fault
            raise
        self.digest.update(content)
        return len(content)


def _parts(place: Path) -> tuple[bytes, bytes]:
    content = place.read_bytes()
    end = len(content) - len(SEAL) - hashlib.sha256().digest_size
    return content[: max(end, 0)], content[max(end, 0) :]
