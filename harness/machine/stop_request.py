"""A request to stop: SIGTERM, Ctrl-C, or a call of `ask`. Training looks for it between two steps, and saves first."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(KeyboardInterrupt):
    """What was under way has stopped because of a request. It can be continued later."""


class StopRequest:
    """Whether what is under way was asked to stop.

    Within `deferring` the first signal only sets `asked`. A second signal, and any signal outside of `deferring`, is
    handled as it was before: it ends the program at once. A signal that was ignored stays ignored.

    Attributes:
        asked: what runs within `deferring` is to stop at the next point from which it can be continued.
    """

    def __init__(self) -> None:
        self.asked = False
        self._deferring, self._signal = False, None
        self._former: dict[int, Any] = {}

    def ask(self) -> None:
        self.asked = True

    def check(self) -> None:
        if self.asked:
            raise Interrupted

    def listen(self) -> None:
        """Receive the signals of this process. Only its main thread can; in other threads nothing is done."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                if before not in (signal.SIG_IGN, None):  # None: the handler was not set from Python
                    self._former[number] = before
                    signal.signal(number, self._on_signal)

    @contextmanager
    def deferring(self) -> Iterator[None]:
        """Within it the first signal is a request. Afterwards the signals are handled as before, the request first.

        Raises: after a request, what the former handler raises, or else Interrupted. An exception of the block is its
        `__context__`.
        """
        listened = bool(self._former)
        if not listened:
            self.listen()
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False
            if not listened:
                self._restore()
            self.check()

    def _restore(self) -> None:
        """Give the signals back to their former handlers, and to these the signal that came meanwhile."""
        for number, before in self._former.items():
            signal.signal(number, before)
        came = self._signal in self._former
        self._former = {}
        if came:
            signal.raise_signal(self._signal)

    def _on_signal(self, number: int, frame: Any) -> None:
        if self._deferring and self._signal is None:
            self.asked, self._signal = True, number
        elif callable(former := self._former[number]):
            former(number, frame)
        else:  # the system's way, which ends the process
            signal.signal(number, former)
            signal.raise_signal(number)
