"""The folder of a pretrained model as transformers writes it: config.json and safetensors. No code is executed."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}
MAX_JSON_BYTES = 4 * 2**20


def mapping_in(place: Path, key: str) -> dict[str, Any]:
    """Return the mapping in a JSON file.

    Args:
        key: the parameter of the suite that names the folder; messages begin with it.
    Raises: ValueError if there is none.
    """
    if not place.is_file():
        raise ValueError(f"{key}: {place} does not exist; name the folder that transformers' save_pretrained wrote")
    try:
        content = json.loads(place.read_bytes()) if place.stat().st_size <= MAX_JSON_BYTES else None
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{key}: {place} cannot be read as a mapping in JSON; copy the file again")
    return content


def weight_files(folder: Path, key: str) -> list[Path]:
    """Return the safetensors files of a folder. Raises ValueError if there are none."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        named = mapping_in(folder / INDEX, key).get("weight_map")
        files = [folder / name for name in sorted(set(map(str, named.values())))] if isinstance(named, dict) else []
        if not files or not all(file.is_file() and file.parent == folder for file in files):
            raise ValueError(f"{key}: {folder / INDEX} names files that are not in its folder; copy them, too")
        return files
    pickles = sorted(each.name for each in folder.iterdir() if each.suffix in PICKLES) if folder.is_dir() else []
    if pickles:
        raise ValueError(
            f"{key}: {folder} holds {pickles[0]}, a pickle, which can run code when it is read, and no {WEIGHTS}; "
            "convert it where you trust it: AutoModelForCausalLM.from_pretrained(folder).save_pretrained(another)"
        )
    raise ValueError(f"{key}: {folder} holds no {WEIGHTS}; name the folder that transformers' save_pretrained wrote")


def stored_tensors(folder: Path, key: str) -> dict[str, Path]:
    """Return the file of each tensor in a folder. Raises ValueError when a file is missing or damaged."""
    found = {}
    for place in weight_files(folder, key):
        with _opened(place, key) as file:
            found |= dict.fromkeys(file.keys(), place)
    return found


def tensor_in(place: Path, name: str, key: str) -> Any:
    """Return a tensor of a safetensors file. Raises ValueError when it cannot be read."""
    with _opened(place, key) as file:
        return file.get_tensor(name)


@contextmanager
def _opened(place: Path, key: str) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(place, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as cause:
        raise ValueError(
            f"{key}: {place} cannot be read as safetensors ({cause}); it may be cut off: copy it again"
        ) from cause


def sha256_of(files: Sequence[Path]) -> str:
    """Return the SHA-256 of a file; of several files, that of their hashes."""
    digests = [_sha256(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


@lru_cache(maxsize=64)
def _sha256(place: Path, size: int, modified: int) -> str:
    with place.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
