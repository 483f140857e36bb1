"""Checks around calls into components, which may be third-party code.

`calling` is used around each single call and takes 5 to 15 us. `contained` is used around the building of a model or
around a whole trial, and checks more. Both raise a ComponentError instead of

- SystemExit, KeyboardInterrupt, GeneratorExit and any other exception that would end the program,
- an exception whose text cannot be shown,
- a change of torch's settings. The old settings are restored.

Any other exception is not changed. Neither is an exception that no component raised: the user's Ctrl-C, a SIGTERM, the
alarm of a time limit, and exceptions raised within `from_outside`.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harness.containment.shared_state import QUICK, TORCH, Process, Switch, put_back, values
from harness.errors import ComponentError
from harness.printable import sentence

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)  # Ctrl-C, a request to end, the alarm of a time limit
OUTSIDE = "raised_outside_of_components"  # attribute of an exception


class calling:
    """A context manager for one call into a component. Raises ComponentError; see the module's docstring.

    Args:
        who: the component in messages: 'head mos'.
        where: the call in messages: 'its constructor'.
        switches: the settings of torch that are compared before and after. QUICK for frequent calls, TORCH for others,
            none if it is enough that a surrounding `contained` finds a change.
        before: the values of the settings, if a previous `calling` has just returned them.
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
def contained(who: str, warn: Callable[[str], None] = lambda message: None) -> Iterator[None]:
    """Check everything that is done with components within the block. Raises ComponentError.

    A KeyboardInterrupt that was not raised within a `calling` is the user's and is not changed.
    Args:
        who: the components in messages: 'head mos on backbone lstm'.
        warn: called with a sentence about state that was changed and is restored without an error (see Process).
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
        if changed := process.put_back():
            warn(f"a component changed {', '.join(changed)}; the old state is restored")


@contextmanager
def from_outside() -> Iterator[None]:
    """Mark exceptions that are raised within the block as not raised by a component."""
    try:
        yield
    except BaseException as error:
        setattr(error, OUTSIDE, True)
        raise


@contextmanager
def marked_signals() -> Iterator[None]:
    """Mark exceptions that the handlers of SIGNALS raise within the block as not raised by a component.

    Afterwards the old handlers are restored, also if a component replaced them. Python runs signal handlers in the main
    thread only, so nothing is done in other threads.
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
            if handler is not None:  # None: the handler was not set from Python
                signal.signal(number, handler)


def first_line(error: BaseException) -> str:
    """Return 'ValueError: its text', one line of limited length, also for an exception whose text cannot be
    computed.
    """
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException as second:
        if is_from_outside(second):
            raise
        return f"{name}, whose text cannot be shown: its __str__ raises {type(second).__name__}"
    return sentence(f"{name}: {text}".splitlines()[0] if text else name)


def is_from_outside(error: BaseException) -> bool:
    """Return whether an exception is marked as not raised by a component."""
    return getattr(error, OUTSIDE, False)


def _refuse(error: BaseException, before: str, after: str, *, interrupts: bool) -> None:
    """Raise ComponentError for an exception that would end the program or that cannot be shown."""
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
