"""Checkpoints and weights on disk, and when they are written. A trial that is resumed from a checkpoint ends with the
bits of an undisturbed one.

A file is torch's archive of tensors and plain values, followed by its SHA-256, since torch.load and safetensors load a
file with a flipped bit without an error. Nothing in a file is ever executed (`weights_only=True`). Only this module
converts between a Checkpoint and the plain values in a file. A trial's folder holds

    checkpoint-000003-00000120-000002.pt   in epoch 3, after 120 steps of it; the best epoch so far is 2. The last two
    best-000002.pt                         the weights of the best epoch, kept while a checkpoint names it
    best.pt                                the same file once the trial is finished
"""

import hashlib
import io
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from harness.errors import Damaged
from harness.kernels.products import Route
from harness.machine.files import atomically

SCHEMA = 2  # of checkpoints: raise it when a part of training is added, removed or has another state
BEST = "best.pt"  # weights of the best epoch by validation, beside the record
PATTERN, BEST_PATTERN = "checkpoint-*.pt", "best-*.pt"
KEPT = 2
SEAL = b"sha256:"  # before the 32 bytes of the digest, at the end of a file
SEALED = len(SEAL) + 32
MOST_TIED = 10  # weights that share one storage, which a file has once: an embedding and an output matrix are two
TRAIN_AGAIN = "train the trial again (--force)"
NO_BEST = "none"  # in a file's name, before the first epoch has ended


class Position(NamedTuple):
    """Where training is: in an epoch, counted from 1, after so many steps of it."""

    epoch: int = 1
    step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A trial's sessions so far: the processes that trained it, one after the other.

    Args:
        started: when the first began, as in ISO 8601.
        elapsed: seconds of all of them; `peak_memory_mib` is the largest.
        route: of float32 products on the CPU in the last one.
        facts: what bits may depend on beside the trial's spec, as texts by name, in the last one.
        changed: sentences about facts that changed between sessions.
        shared: other work was known or observed to run in one of them.
        read: what components read that no parameter names, in all of them.
    """

    number: int
    started: str
    elapsed: float
    peak_memory_mib: float
    route: Route
    facts: dict[str, str]
    changed: tuple[str, ...] = ()
    shared: bool = False
    read: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All that a trial needs to be resumed.

    Args:
        best_epoch: of which best weights are kept beside the checkpoint; None before the first epoch has ended.
        parts: the state of each part of training, by its name (harness/training/parts.py). Within an epoch 'step' is
            one of them.
    """

    trial: str
    position: Position
    best_epoch: int | None
    session: SessionInfo
    parts: dict[str, dict[str, Any]]


def save(content: dict[str, Any], place: Path) -> None:
    """Write tensors and plain values atomically, sealed. Raises StorageError when the place cannot be written."""
    with atomically(place) as file:
        hashed = _Hashed(file)
        try:
            torch.save(content, hashed)
        except RuntimeError:  # what torch raises when a write fails
            if hashed.fault is None:
                raise
            raise hashed.fault from None
        file.write(SEAL + hashed.digest.digest())


def load(place: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `save` wrote, with its tensors on `device`.

    Raises: Damaged when there is no file, or when it is not what was written: truncated, with a flipped bit, or a file
    of another kind.
    """
    try:
        whole = place.read_bytes()
        content, seal = whole[: max(len(whole) - SEALED, 0)], whole[-SEALED:]
        del whole  # as large as the content
        if seal != SEAL + hashlib.sha256(content).digest():
            raise Damaged(f"{place}: its SHA-256 does not fit its content")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist()):
                raise Damaged(f"{place}: it is compressed, which this harness does not do; {TRAIN_AGAIN}")
        return torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    except Damaged:
        raise
    except Exception as cause:  # torch raises many kinds for a file that `save` did not write
        raise Damaged(f"{place}: no checkpoint ({type(cause).__name__}: {str(cause).partition(chr(10))[0]})") from cause


def load_weights(place: Path, device: torch.device | str) -> dict[str, Tensor]:
    """A state dict that was saved as {'weights': ...}.

    Raises: Damaged, also for another content, or tensors that name the numbers of the file over and over.
    """
    content = load(place, device)
    weights = content.get("weights") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(map(_is_plain, weights.values())):
        raise Damaged(f"{place}: it holds no weights of a model; {TRAIN_AGAIN}")
    if sum(each.nbytes for each in weights.values()) > MOST_TIED * place.stat().st_size:
        raise Damaged(f"{place}: its tensors have more than {MOST_TIED} times as many bytes as the file; {TRAIN_AGAIN}")
    return weights


def _is_plain(value: object) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided and not value.is_meta


def weights_sha256(weights: dict[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes, in the order of names: equal weights, equal digest."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Checkpoints:
    """The checkpoints in a trial's folder. `warn` receives a sentence for each that cannot be used."""

    def __init__(self, folder: Path, warn: Callable[[str], None] = lambda message: None):
        self.folder, self.warn = folder, warn

    def newest(self, trial: str) -> Checkpoint | None:
        """The newest checkpoint that is undamaged, and whose best weights are.

        Returns: None when there is none, or when it is of another trial or another version of the harness: a trial has
        to start again then.
        """
        for place in self._places():
            try:
                content = load(place)
                if (content.get("schema"), content.get("trial")) != (SCHEMA, trial):
                    made_by = "made by another version of the harness or for another trial"
                    self.warn(f"{place}: {made_by}; the trial starts again")
                    return None
                found = _from_plain(content)
                if found.best_epoch is not None:
                    self.best_weights(found.best_epoch, "cpu")
            except Damaged as damaged:
                self.warn(f"{damaged}; an older checkpoint is used if there is one")
                continue
            return found
        return None

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint. Of the older ones the newest stays, and the best weights that either names."""
        epoch, step = checkpoint.position
        best = NO_BEST if checkpoint.best_epoch is None else f"{checkpoint.best_epoch:06}"
        save(_to_plain(checkpoint), self.folder / f"checkpoint-{epoch:06}-{step:08}-{best}.pt")
        kept, outdated = self._places()[:KEPT], self._places()[KEPT:]
        named = {f"best-{place.stem.rpartition('-')[2]}.pt" for place in kept}
        for place in [*outdated, *(each for each in self.folder.glob(BEST_PATTERN) if each.name not in named)]:
            place.unlink()

    def save_best(self, weights: dict[str, Tensor], epoch: int) -> None:
        save({"weights": weights}, self._best_place(epoch))

    def best_weights(self, epoch: int, device: torch.device | str) -> dict[str, Tensor]:
        """The weights kept for an epoch. Raises Damaged."""
        return load_weights(self._best_place(epoch), device)

    def publish_best(self, epoch: int) -> None:
        """Copy the weights kept for an epoch to best.pt."""
        with atomically(self.folder / BEST) as file, self._best_place(epoch).open("rb") as kept:
            shutil.copyfileobj(kept, file)

    def remove(self) -> None:
        """Remove all checkpoints and the best weights that they name. best.pt stays."""
        for place in [*self.folder.glob(PATTERN), *self.folder.glob(BEST_PATTERN)]:
            place.unlink()

    def _places(self) -> list[Path]:
        """Newest first."""
        return sorted(self.folder.glob(PATTERN), reverse=True)

    def _best_place(self, epoch: int) -> Path:
        return self.folder / f"best-{epoch:06}.pt"


def _to_plain(checkpoint: Checkpoint) -> dict[str, Any]:
    """A checkpoint as a file holds it: tensors and plain values only.

    Where nothing was read it is as before that was noted.
    """
    session = asdict(checkpoint.session)
    if not session["read"]:
        del session["read"]
    return {
        "schema": SCHEMA,
        "trial": checkpoint.trial,
        "position": list(checkpoint.position),
        "best_epoch": checkpoint.best_epoch,
        "session": session,
        "parts": checkpoint.parts,
    }


def _from_plain(content: dict[str, Any]) -> Checkpoint:
    """The checkpoint that `_to_plain` was given."""
    plain = content["session"]
    session = SessionInfo(**{**plain, "changed": tuple(plain["changed"]), "read": tuple(plain.get("read", ()))})
    kept = {name: content[name] for name in ("trial", "best_epoch", "parts")}
    return Checkpoint(**kept, position=Position(*content["position"]), session=session)


class _Hashed(io.RawIOBase):
    """Writes to a file and hashes what is written; keeps the OSError that torch turns into a RuntimeError."""

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
