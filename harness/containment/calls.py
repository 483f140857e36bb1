"""Calls into components, which may be anybody's code: what one raises or changes ends with the call.

`calling` goes around each single call; it takes 5 to 15 us. `contained` goes around the building of a model, or a whole
trial, and looks at more. Both make a ComponentError of

- SystemExit, KeyboardInterrupt, GeneratorExit and whatever else would end the program,
- an exception whose text cannot be shown,
- a change of torch's settings, which are put back.

Any other exception passes as it is. So does what no component raised: the user's Ctrl-C, a SIGTERM, the alarm of a time
limit, and what is raised within `from_outside`.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harness.containment.shared_state import QUICK, TORCH, Process, Switch, put_back, values
from harness.errors import ComponentError
from harness.printable import sentence

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)  # Ctrl-C, the order to end, the alarm of a time limit
OUTSIDE = "raised_outside_of_components"  # attribute of an exception


class calling:
    """Use as a context manager around a call into a component.

    Args:
        who: 'head mos'.
        where: 'its constructor'.
        switches: the settings of torch that are compared. QUICK where the call is one of many, TORCH where it is not,
            none where a change may wait for the `contained` around all calls.
        before: their values, where the call before has just read them: what its `with` gave.
    """

    __slots__ = ("_before", "_switches", "_where", "_who")

    def __init__(
        self, who: str, where: str, switches: Mapping[str, Switch] = QUICK, before: tuple[Any, ...] | None = None
    ):
        self._who, self._where, self._switches, self._before = who, where, switches, before

    def __enter__(self) -> tuple[Any, ...]:
        if self._before is None:
            self._before = values(self._switches)
        return self._before

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        same = values(self._switches) == self._before
        changed = [] if same else put_back(self._switches, self._before)
        if error is not None:
            _refuse(error, f"{self._who} raised", f" in {self._where}", interrupts=True)
        if changed and (error is None or not is_from_outside(error)):
            raise ComponentError(_changes(self._who, changed, f" in {self._where}")) from error


@contextmanager
def contained(who: str, tell: Callable[[str], None] = lambda said: None) -> Iterator[None]:
    """Around everything that is done with components. A KeyboardInterrupt that no `calling` saw is the user's.

    Args:
        who: 'head mos on backbone lstm'.
        tell: is given a sentence about what was changed and put back without an error: see Process.
    Raises: ComponentError.
    """
    before, process = values(TORCH), Process()
    try:
        with marked_signals():
            yield
    except BaseException as error:
        put_back(TORCH, before)
        _refuse(error, f"{who} raised", "", interrupts=False)
        raise
    else:
        if changed := put_back(TORCH, before):
            raise ComponentError(_changes(who, changed, ""))
    finally:
        if said := process.put_back():
            tell(f"changed meanwhile and put back: {', '.join(said)}")


@contextmanager
def from_outside() -> Iterator[None]:
    """What is raised within it is nothing that a component did."""
    try:
        yield
    except BaseException as error:
        setattr(error, OUTSIDE, True)
        raise


@contextmanager
def marked_signals() -> Iterator[None]:
    """Within it, what the handlers of SIGNALS raise is known to be from outside. Afterwards these handlers are what
    they were, whatever a component made of them. Signals reach the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, _marking(handler))
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: it was not Python that set it
                signal.signal(number, handler)


def first_line(error: BaseException) -> str:
    """'ValueError: what it says', of one line and a bounded length, whatever the exception makes of being shown."""
    name = type(error).__name__
    try:
        said = str(error)
    except BaseException as second:
        if is_from_outside(second):
            raise
        return f"{name}, whose text cannot be shown: its __str__ raises {type(second).__name__}"
    return sentence(f"{name}: {said}".splitlines()[0] if said else name)


def is_from_outside(error: BaseException) -> bool:
    """Whether no component raised it."""
    return getattr(error, OUTSIDE, False)


def _refuse(error: BaseException, before: str, after: str, *, interrupts: bool) -> None:
    """Raises ComponentError for an exception that must not pass as it is."""
    if is_from_outside(error) or isinstance(error, ComponentError):
        return
    ends_program = not isinstance(error, Exception) and (interrupts or not isinstance(error, KeyboardInterrupt))
    if ends_program or not _can_be_shown(error):
        raise ComponentError(f"{before} {first_line(error)}{after}") from error


def _can_be_shown(error: BaseException) -> bool:
    try:
        return isinstance(str(error), str)
    except BaseException as second:
        if is_from_outside(second):
            raise
        return False


def _changes(who: str, changed: list[str], where: str) -> str:
    return f"{who} changed {', '.join(changed)}{where}; a component must leave torch's settings as they are"


def _marking(handler: Callable[..., Any]) -> Callable[..., Any]:
    def marked(*arguments: Any) -> Any:
        with from_outside():
            return handler(*arguments)

    return marked
