"""Ends a process in which a submitted source opens a connection, starts a process or thread, writes a file, or reads
one that is not of Python or the harness.

It is an audit hook of Python, which `confined` installs in each process that imports the source. It looks at who asks:
the harness itself may do all of these, and so may the import of a module. It needs the standard library only, since it
is installed before anything else. An author who knows it can evade it, with code in C for example: see
docs/submitting.md.
"""

import os
import sys
from typing import Any

CODE = 86  # exit code of a process that was ended
GROUPS = ("socket.", "subprocess.", "ctypes.", "pty.", "shutil.", "ftplib.", "http.", "urllib.", "smtplib.", "mmap.")
EVENTS = {
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "os.kill"),
    *("os.killpg", "os.putenv", "os.unsetenv", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link"),
    *("os.symlink", "os.chmod", "os.chown", "os.truncate", "os.listdir", "os.scandir", "os.chdir"),
    *("_thread.start_new_thread", "sys.addaudithook", "gc.get_objects", "gc.get_referrers", "sys._current_frames"),
    *("signal.pthread_kill", "resource.setrlimit"),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def install(sources: str, code: tuple[str, ...], report: str) -> None:
    """Watch this process from now on, and the processes that it forks.

    Args:
        sources: the folder of the sources that are watched.
        code: the folders of Python and of the harness, in which they may read.
        report: the file to which a line is added before a process is ended.
    """
    within, readable = sources + os.sep, tuple(f"{each}{os.sep}" for each in (sources, *code))
    ending = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        """Of every audited operation: end the process if code of the submission asked for it."""
        if ending or not _is_watched(event, arguments, readable):
            return
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return
            if frame.f_code.co_filename.startswith(within):
                ending.append(True)
                line = f"line {frame.f_lineno}: {event} {_first(arguments)}\n"
                with open(report, "a", encoding="utf-8", errors="replace") as file:
                    file.write(line)
                os._exit(CODE)
            frame = frame.f_back

    sys.addaudithook(hook)


def _is_watched(event: str, arguments: tuple[Any, ...], readable: tuple[str, ...]) -> bool:
    if event != "open":
        return event in EVENTS or event.startswith(GROUPS)
    place, mode, flags = arguments
    if isinstance(mode, str) and set(mode) & set("wax+"):
        return True
    if isinstance(flags, int) and flags & WRITING:
        return True
    return isinstance(place, str | bytes) and not os.path.realpath(os.fsdecode(place)).startswith(readable)


def _first(arguments: tuple[Any, ...]) -> str:
    return next((each[:80] for each in arguments if isinstance(each, str)), "")
