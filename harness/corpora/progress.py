"""How much of a text is read, for a progress bar: a command that shows one sets where it is reported."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

Report = Callable[[str, int, int], None]  # of which text, how much is read, of how much
_reports: list[Report] = []  # not a ContextVar, because the tokenizers library reads texts in threads of its own


@contextmanager
def reported_to(listener: Report) -> Iterator[None]:
    """Report to a function, within the block, what is read in this process."""
    _reports.append(listener)
    try:
        yield
    finally:
        _reports.remove(listener)


def send_all(send: Callable[[tuple[str, int, int]], None]) -> None:
    """In a copy of this process: send the caller what is read, instead of reporting it here."""
    _reports[:] = [lambda *read: send(read)]


def report(what: str, done: int, total: int) -> None:
    """Report that so much of a text is read."""
    for each in _reports:
        each(what, done, total)


def followed(parts: Iterable[str], what: str, total: int, size: Callable[[str], int], done: int = 0) -> Iterator[str]:
    """Yield parts of a text, and report each.

    Args:
        total: the sum of all sizes.
        done: the sum of the sizes before the first part.
    """
    for part in parts:
        done += size(part)
        report(what, done, total)
        yield part
