"""Canonical JSON: the text from which ids and checksums are computed."""

import hashlib
import json
from typing import Any


def canonical(value: Any) -> str:
    """Return JSON that is equal for equal values."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def checksum(content: dict[str, Any]) -> str:
    """Return the SHA-256 that a file of this content holds beside it."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def plain(value: Any) -> Any:
    """Return a value in the types of JSON: 1.0 becomes 1 and a tuple becomes a list, also within lists and mappings."""
    if isinstance(value, str | int | None):  # most values: thousands of records are read this way
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    return value
