"""MLflow's server as a process that ends with `harness ui`, whatever ended that: even SIGKILL.

`harness ui` starts this module as a process of its own and keeps the other end of its standard input. When that is
closed, as the system does for a process that is gone, the server and the processes that it started are ended.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

GRACE_SECONDS = 5.0  # for the server to end by itself
LOOK_SECONDS = 0.1
FROM_TERMINAL = (signal.SIGINT, signal.SIGHUP)  # sent to all processes of a terminal: `harness ui` decides


def start(command: list[str], **options) -> subprocess.Popen:
    """A command under this module's watch. Closing its standard input ends it; `options` are subprocess.Popen's."""
    return subprocess.Popen([sys.executable, "-m", __name__, *command], stdin=subprocess.PIPE, **options)


def end(process: subprocess.Popen) -> None:
    """End what `start` gave, and wait until it is gone."""
    process.stdin.close()
    process.wait()


def main(command: list[str]) -> int:
    """Run a command until it ends or standard input is closed; its exit code. No process of it is left then."""
    for number in FROM_TERMINAL:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the server would inherit
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    signal.signal(signal.SIGTERM, lambda *_: _signal(server.pid, signal.SIGTERM))
    threading.Thread(target=_end_with_parent, args=(server.pid,), daemon=True).start()
    code = server.wait()
    _end(server.pid)
    return code


def _end_with_parent(group: int) -> None:
    os.read(0, 1)  # standard input: nothing is ever written, so it returns when the other end is closed
    _end(group)


def _end(group: int) -> None:
    """Ask all processes of a group to end, and kill those that do not."""
    deadline = time.monotonic() + GRACE_SECONDS
    _signal(group, signal.SIGTERM)
    while _signal(group, 0) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a group; whether there is one."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
        return True
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
