"""MLflow's UI as a separate process, reachable from this machine only, that ends together with `harness ui`.

`harness ui` starts this module as a process and holds the other end of its standard input. The operating system closes
that end when `harness ui` ends, even by SIGKILL. This module then ends the server and all processes that it started.
"""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness.errors import ExecutionError
from harness.tracking import database
from harness.tracking.fields import CHARTS_VIEW, RUNS_VIEW

HERE = "127.0.0.1"
NAMES = (HERE, "localhost", "[::1]")  # by which a browser may call the server; a tunnel may have another port
# Variables of the user's environment that would let other hosts or pages use the server.
UNSAFE_VARIABLES = ("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS")
START_SECONDS = 60
GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
LOG_NAME = ".mlflow-ui.log"
FROM_TERMINAL = (signal.SIGINT, signal.SIGHUP)  # sent to all processes of a terminal; the server ends with the command


def serve(results: Path, port: int, suite: str | None, announce: Callable[[str], None]) -> int:
    """Start the UI, announce its links when it answers, and wait until it ends.

    Args:
        suite: the suite whose runs the links open; None for the suite that was written last.
    Returns: the exit code of the server.
    Raises: ExecutionError: there is no database, the suite is unknown, the port is taken, or the UI does not start.
    """
    experiment, base = _experiment(results, suite), f"http://{HERE}:{port}"
    _refuse_taken(port)
    log = results / "runs" / LOG_NAME
    with log.open("wb") as output:
        server = start(_command(results, port), stdout=output, stderr=output, env=_environment())
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(port):
            if server.poll() is not None or time.monotonic() > deadline:
                raise ExecutionError(f"the MLflow UI did not start on {base}; its log is {log}")
            time.sleep(0.3)
        charts = deep_link(base, experiment, charts=True)
        announce(f"runs:   {deep_link(base, experiment)}\ncharts: {charts}\nCtrl-C ends it")
        return server.wait()
    finally:
        end(server)


def deep_link(base: str, experiment: str | None, *, charts: bool = False) -> str:
    """The link to the runs of an experiment in one of our saved views: the table of trials, or the charts.

    Without a saved view the UI shows an overview page without runs, or a table without metrics.
    """
    if experiment is None:
        return f"{base}/#/experiments"
    view = f"&compareRunsMode=CHART&viewStateShareKey={CHARTS_VIEW}" if charts else f"&viewStateShareKey={RUNS_VIEW}"
    return f"{base}/#/experiments/{experiment}/runs?workflowType=machine_learning{view}"


def start(command: list[str], **options) -> subprocess.Popen:
    """Start a command that ends when the standard input of the returned process is closed."""
    return subprocess.Popen([sys.executable, "-m", __name__, *command], stdin=subprocess.PIPE, **options)


def end(process: subprocess.Popen) -> None:
    """End a process that `start` returned, and wait until it has ended."""
    process.stdin.close()
    process.wait()


def main(command: list[str]) -> int:
    """Run a command until it ends or standard input is closed; return its exit code. None of its processes is left
    then.
    """
    for number in FROM_TERMINAL:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the server would inherit
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    signal.signal(signal.SIGTERM, lambda *_: _signal(server.pid, signal.SIGTERM))
    threading.Thread(target=_end_with_parent, args=(server.pid,), daemon=True).start()
    code = server.wait()
    _end(server.pid)  # guard: ui-children-end
    return code


def _experiment(results: Path, suite: str | None) -> str | None:
    """The id of the experiment to open: of the given suite, or else the one that was written last."""
    place = results / database.DATABASE
    if not database.exists(results):
        raise ExecutionError(f"{place} does not exist: run a suite first, or `harness sync`")
    try:
        found = database.client(results).search_experiments(order_by=["last_update_time DESC"])
    except database.UnusableDatabase as fault:
        raise ExecutionError(f"{fault}; `harness sync` writes it again from the records") from fault
    experiments = {each.name: each.experiment_id for each in found if each.name != "Default"}
    if suite is not None and suite not in experiments:
        raise ExecutionError(f"no suite '{suite}' in {place} (known: {', '.join(sorted(experiments))})")
    return experiments[suite] if suite else next(iter(experiments.values()), None)


def _command(results: Path, port: int) -> list[str]:
    """The command of the server, with the exact names that a browser may use for it: by default MLflow accepts every
    name that begins like a private address, such as 10.<anything>. In its patterns '[' begins a set of characters.
    """
    allowed = ",".join(pattern for name in NAMES for pattern in (name, f"{name.replace('[', '[[]', 1)}:*"))
    artifacts = (results.absolute() / database.ARTIFACTS).as_uri()
    options = ["--backend-store-uri", database.address(results), "--artifacts-destination", artifacts]
    # guard: ui-address HERE -> ".".join("0000")
    options += ["--host", HERE, "--port", str(port), "--workers", "1"]
    # guard: ui-allowed-hosts , "--allowed-hosts", allowed ->
    return [sys.executable, "-m", "mlflow", "server", *options, "--allowed-hosts", allowed]


def _environment() -> dict[str, str]:
    # guard: ui-environment not in UNSAFE_VARIABLES ->
    return {name: value for name, value in os.environ.items() if name not in UNSAFE_VARIABLES}


def _refuse_taken(port: int) -> None:
    """Raises ExecutionError when no server can listen on a port: another one does, or this user may not."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HERE, port))
        except OSError as fault:
            raise ExecutionError(f"port {port} is taken ({fault.strerror}); choose another with --port") from fault


def _answers(port: int) -> bool:
    """Whether the server answers. No proxy of the environment is asked, as urllib would."""
    line = http.client.HTTPConnection(HERE, port, timeout=2)
    try:
        line.request("GET", "/health")
        return line.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        line.close()


def _end_with_parent(group: int) -> None:
    # guard: ui-server-ends -> threading.Event().wait()
    os.read(0, 1)  # nothing is ever written to standard input, so this returns when the other end is closed
    _end(group)


def _end(group: int) -> None:
    """Send SIGTERM to all processes of a group, and SIGKILL to those that do not end."""
    deadline = time.monotonic() + GRACE_SECONDS
    _signal(group, signal.SIGTERM)
    while _signal(group, 0) and time.monotonic() < deadline:
        time.sleep(0.1)
    _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group. Returns whether the group exists."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
        return True
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
