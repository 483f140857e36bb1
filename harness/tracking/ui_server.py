"""Runs MLflow's server in a process that ends together with `harness ui`, even when that is ended by SIGKILL.

`harness ui` starts this module as a separate process and holds the other end of its standard input. The operating
system closes that end when `harness ui` ends. This module then ends the server and all processes that it started.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
POLL_SECONDS = 0.1
FROM_TERMINAL = (signal.SIGINT, signal.SIGHUP)  # sent to all processes of a terminal; ignored here


def start(command: list[str], **options) -> subprocess.Popen:
    """Start a command that ends when the standard input of the returned process is closed. `options` are passed to
    subprocess.Popen.
    """
    return subprocess.Popen([sys.executable, "-m", __name__, *command], stdin=subprocess.PIPE, **options)


def end(process: subprocess.Popen) -> None:
    """End a process that `start` returned, and wait until it has ended."""
    process.stdin.close()
    process.wait()


def main(command: list[str]) -> int:
    """Run a command until it ends or standard input is closed. No process of the command is left after that.

    Returns:
        The exit code of the command.
    """
    for number in FROM_TERMINAL:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the server would inherit
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    signal.signal(signal.SIGTERM, lambda *_: _signal(server.pid, signal.SIGTERM))
    threading.Thread(target=_end_with_parent, args=(server.pid,), daemon=True).start()
    code = server.wait()
    _end(server.pid)  # guard: ui-children-end
    return code


def _end_with_parent(group: int) -> None:
    # guard: ui-server-ends -> threading.Event().wait()
    os.read(0, 1)  # nothing is ever written to standard input, so this returns when the other end is closed
    _end(group)


def _end(group: int) -> None:
    """Send SIGTERM to all processes of a group, and SIGKILL to those that do not end."""
    deadline = time.monotonic() + GRACE_SECONDS
    _signal(group, signal.SIGTERM)
    while _signal(group, 0) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group. Returns whether the group exists."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
        return True
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
