"""How far the reading of a text is, for a progress bar: a command that shows one sets where it is reported."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Report = Callable[[str, int, int], None]  # what is done, how much of it, of how much
_REPORT: ContextVar[Report | None] = ContextVar("report", default=None)


@contextmanager
def reported_to(report: Report) -> Iterator[None]:
    """Report progress within the block to a function."""
    before = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(before)


def followed(parts: Iterable[str], what: str, total: int, size: Callable[[str], int], done: int = 0) -> Iterator[str]:
    """Yield parts of a text, and report each when the next one is asked for.

    Args:
        total: the sum of all sizes.
        done: the sum of the sizes before the first part.
    """
    for part in parts:
        yield part
        done += size(part)
        if (report := _REPORT.get()) is not None:
            report(what, done, total)
