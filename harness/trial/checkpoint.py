"""Weights on disk: written whole or not at all, and named by their content."""

import hashlib
import io
from pathlib import Path

import torch
from torch import Tensor

from harness.files import write_atomically

BEST = "best.pt"  # weights of the best epoch by validation, beside the record


def save_weights(weights: dict[str, Tensor], place: Path) -> None:
    """Write a state dict atomically."""
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    write_atomically(place, buffer.getvalue())


def load_weights(place: Path, device: torch.device) -> dict[str, Tensor]:
    """Read a state dict; tensors only, nothing in the file is executed."""
    return torch.load(place, map_location=device, weights_only=True)


def weights_sha256(weights: dict[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes, in the order of names: equal weights, equal digest."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
