"""Read what other people made in a process of its own, which may take so much memory and no more, and can be ended.

Libraries in Rust and C++ end their process where memory is short, and answer no signal before they return. In a copy of
this process they do so without harm: the caller waits in Python, and ends the copy when it is interrupted. A copy has
none of the other threads of this process, so nothing may run in it that needs them, such as products of torch.
"""

import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import psutil

from harness.errors import CorpusError, HarnessError
from harness.machine.limits import memory

GIB = 2**30
LINUX = sys.platform == "linux"  # elsewhere memory is not limited
Send = Callable[[Any], None]
_in_copy = False


def limited(work: Callable[[Send], None], what: str, most: int | None = None) -> Iterator[Any]:
    """Yield what `work` sends, while it runs in a copy of this process.

    Args:
        work: gets a function that sends; what is sent must be picklable.
        what: what it reads, for messages.
        most: bytes of memory that it may take; never more than half of what is free, which is also the default.
    Raises: what `work` raises; CorpusError when it takes more memory.
    """
    half = memory().free // 2
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    with tempfile.TemporaryFile() as printed, receiving:
        copy = context.Process(target=_run, args=(work, sending, min(most or half, half), printed.fileno()))
        copy.start()
        sending.close()
        try:
            yield from _received(receiving)
            copy.join()
            if copy.exitcode:  # by a signal: what a library prints then is not for users
                raise MemoryError
        except MemoryError:
            raise CorpusError(
                f"{what}: to read it takes more memory than a file of its size needs, or than is free here; "
                "use another file, or free some memory"
            ) from None
        finally:
            copy.kill()
            copy.join()
        printed.seek(0)
        sys.stderr.write(printed.read().decode(errors="replace"))


def allow(more: int) -> None:
    """Let this process, if it is such a copy, take at most so many bytes more than it has now."""
    if _in_copy and LINUX:
        wanted = psutil.Process().memory_info().data + more
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard < 0 else min(wanted, hard), hard))


def _received(receiving: Connection) -> Iterator[Any]:
    while True:
        try:
            sent, fault = receiving.recv()
        except EOFError:
            return
        if fault is not None:
            raise fault
        yield sent


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _run(work: Callable[[Send], None], sending: Connection, most: int, printed: int) -> None:
    global _in_copy
    _in_copy = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    os.dup2(printed, 2)
    allow(most)
    try:
        work(lambda each: sending.send((each, None)))
    except BaseException as fault:
        if not isinstance(fault, HarnessError | MemoryError):
            fault.add_note("".join(traceback.format_exception(fault)))  # it is not pickled
        sending.send((None, fault))
