"""Values that belong together, by what they share."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

Key, Value = TypeVar("Key", bound=Hashable), TypeVar("Value")


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """A key -> the values that come with it, both in the order in which they come."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
