"""Who writes something, as a line of text: host, process id and start of the process. And whether that process is gone.

A process id alone may be another process by now; another host's processes cannot be seen, so they count as alive.
"""

import socket

import psutil

CLOCK_SECONDS = 2  # by which a process' start may seem to move, when the system's clock is set


def current() -> str:
    """This process."""
    process = psutil.Process()
    return f"{socket.gethostname()} {process.pid} {process.create_time():.2f}"


def gone(writer: str) -> bool:
    """Whether a writer of this host is no longer there; False for another host's, and for what is no writer."""
    try:
        host, pid, started = writer.rsplit(" ", 2)
        if host != socket.gethostname():
            return False
        process = psutil.Process(int(pid))
        reused = abs(process.create_time() - float(started)) > CLOCK_SECONDS
        return reused or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except (ValueError, psutil.AccessDenied):
        return False
