"""MLflow's UI, `mlflow server`, reachable from this machine only. It ends together with `harness ui`."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlencode

from harness.errors import ExecutionError
from harness.tracking import database

HERE = "127.0.0.1"
NAMES = (HERE, "localhost", "[::1]")  # by which a browser may call the server; a tunnel may have another port
# Variables of the user's environment that would let other hosts or pages use the server.
UNSAFE_VARIABLES = ("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS")
ARTIFACTS = "artifacts"  # of the results folder: files that a user logs through the server
LOG_NAME = ".mlflow-ui.log"
# Runs a command, and ends it with all that it started when standard input is closed. `harness ui`
# holds the other end, which the operating system closes when `harness ui` ends, even by SIGKILL.
WHILE_INPUT_IS_OPEN = '{ "$@"; kill -KILL 0; } & read -r _; kill -KILL 0'


def serve(results: Path, port: int, suite: str | None, announce: Callable[[str], None]) -> None:
    """Start the UI, announce its link when it answers, and wait until it is interrupted.

    Args:
        suite: the suite whose runs the link opens; None for the list of suites.
    Raises: ExecutionError: there is no database, the suite is unknown, the port is taken, or the server ended.
    """
    base = f"http://{HERE}:{port}"
    link = f"{base}/#{page(results, suite)}"
    if _answers(port):
        raise ExecutionError(f"port {port} is taken; choose another with --port")
    log = results / "runs" / LOG_NAME
    with log.open("wb") as output, start(_command(results, port), stdout=output, stderr=output) as server:
        while server.poll() is None and not _answers(port):
            time.sleep(0.3)
        if server.poll() is None:
            announce(f"{link}\nCtrl-C ends it")
        server.wait()
    raise ExecutionError(f"the MLflow server on {base} ended; its log is {log}")


def page(results: Path, suite: str | None) -> str:
    """The page of a suite's trials in the UI, lowest test perplexity first; None: that of all suites."""
    place = results / database.DATABASE
    if not place.exists():
        raise ExecutionError(f"{place} does not exist: run a suite first, or `harness sync`")
    try:
        client = database.client(results)
    except database.UnusableDatabase as fault:
        raise ExecutionError(f"{fault}; `harness sync` writes it again from the records") from fault
    if suite is None:
        return "/experiments"
    experiment = client.get_experiment_by_name(suite)
    if experiment is None:
        known = ", ".join(sorted(each.name for each in client.search_experiments() if each.name != "Default"))
        raise ExecutionError(f"no suite '{suite}' in {place} (known: {known})")
    asked = {"searchFilter": "tags.stage = 'table'", "orderByKey": "metrics.`test/ppl`", "orderByAsc": "true"}
    question = urlencode({"workflowType": "machine_learning", **asked}, quote_via=quote)
    return f"/experiments/{experiment.experiment_id}/runs?{question}"


def start(command: list[str], **options) -> subprocess.Popen:
    """Start a command that ends, with all that it started, when this process does."""
    # guard: ui-environment not in UNSAFE_VARIABLES ->
    environment = {name: value for name, value in os.environ.items() if name not in UNSAFE_VARIABLES}
    watched = ["sh", "-c", WHILE_INPUT_IS_OPEN, "sh", *command]
    return subprocess.Popen(watched, stdin=subprocess.PIPE, start_new_session=True, env=environment, **options)


def _command(results: Path, port: int) -> list[str]:
    """The command of the server, with the exact names that a browser may use for it: by default MLflow accepts every
    name that begins like a private address, such as 10.<anything>. In its patterns '[' begins a set of characters.
    """
    allowed = ",".join(pattern for name in NAMES for pattern in (name, f"{name.replace('[', '[[]', 1)}:*"))
    artifacts = (results.absolute() / ARTIFACTS).as_uri()
    options = ["--backend-store-uri", database.address(results), "--artifacts-destination", artifacts]
    # guard: ui-address HERE -> ".".join("0000")
    options += ["--host", HERE, "--port", str(port), "--workers", "1"]
    # guard: ui-allowed-hosts , "--allowed-hosts", allowed ->
    return [sys.executable, "-m", "mlflow", "server", *options, "--allowed-hosts", allowed]


def _answers(port: int) -> bool:
    """Whether a program listens on a port of this machine."""
    with socket.socket() as line:
        return line.connect_ex((HERE, port)) == 0
