"""Starts MLflow's UI as a separate process, reachable from this machine only, and makes the links to a suite's runs."""

import ipaddress
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.errors import ExecutionError
from harness.tracking import database, ui_server
from harness.tracking.database import DATABASE
from harness.tracking.saved_views import CURVES_VIEW, RUNS_VIEW
from harness.tracking.tracker import open_client, store_uri

LOCALHOST = "127.0.0.1"
LOOPBACK = (LOCALHOST, "localhost", "::1")
# Variables of the user's environment that would let other hosts or pages use the server.
UNSAFE_VARIABLES = ("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS")
START_SECONDS = 60
LOG_NAME = ".mlflow-ui.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address that the UI listens on.

    Args:
        host: a name or an IP address of this machine.
        port: a free port.
        remote: allow a host that other machines can reach.
    """

    host: str = LOCALHOST
    port: int = 5000
    remote: bool = False

    @property
    def base(self) -> str:
        """The URL to open on this machine."""
        return f"http://{_in_url(LOCALHOST if _is_any(self.host) else self.host)}:{self.port}"


def serve(results: Path, address: Address, suite: str | None, announce: Callable[[str], None]) -> int:
    """Start the UI, announce its links when it answers, and wait until it ends.

    Args:
        results: the results folder.
        address: where to listen.
        suite: the suite whose runs the links open; None for the suite that was written last.
        announce: receives the text with the links.

    Returns:
        The exit code of the server.

    Raises:
        ExecutionError: there is no database, the suite is unknown, other machines could reach the address, the port
            is taken, or the UI does not start.
    """
    _refuse_remote(address)  # guard: ui-not-remote
    experiment = _experiment(results, suite)
    base = address.base
    if _answers(base):
        raise ExecutionError(f"port {address.port} is taken; choose another with --port")
    log = results / "runs" / LOG_NAME
    with log.open("wb") as output:
        server = ui_server.start(_command(results, address), stdout=output, stderr=output, env=_environment())
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(base):
            if server.poll() is not None or time.monotonic() > deadline:
                raise ExecutionError(f"the MLflow UI did not start on {base}; its log is {log}")
            time.sleep(0.3)
        curves = deep_link(base, experiment, charts=True)
        announce(f"runs:   {deep_link(base, experiment)}\ncurves: {curves}\nCtrl-C ends it")
        return server.wait()
    finally:
        ui_server.end(server)


def deep_link(base: str, experiment: str | None, *, charts: bool = False) -> str:
    """The link to the runs of an experiment in one of our saved views: the table of trials, or the curves.

    Without a saved view the UI shows an overview page without runs, or a table without metrics.
    """
    if experiment is None:
        return f"{base}/#/experiments"
    view = f"&compareRunsMode=CHART&viewStateShareKey={CURVES_VIEW}" if charts else f"&viewStateShareKey={RUNS_VIEW}"
    return f"{base}/#/experiments/{experiment}/runs?workflowType=machine_learning{view}"


def _refuse_remote(address: Address) -> None:
    if address.host not in LOOPBACK and not address.remote:
        raise ExecutionError(
            f"--host {address.host} lets other machines read and change the runs without a password. Use a tunnel "
            f"instead (ssh -L {address.port}:{LOCALHOST}:{address.port} <this machine>), or add --allow-remote"
        )


def _experiment(results: Path, suite: str | None) -> str | None:
    """The id of the experiment to open: of the given suite, or else the one that was written last."""
    place = results / DATABASE
    if not database.exists(results):
        raise ExecutionError(f"{place} does not exist: run a suite first, or `harness sync`")
    try:
        found = open_client(results).search_experiments(order_by=["last_update_time DESC"])
    except database.UnusableDatabase as fault:
        raise ExecutionError(f"{fault}; `harness sync` writes it again from the records") from fault
    experiments = {each.name: each.experiment_id for each in found if each.name != "Default"}
    if suite is not None and suite not in experiments:
        raise ExecutionError(f"no suite '{suite}' in {place} (known: {', '.join(sorted(experiments))})")
    return experiments[suite] if suite else next(iter(experiments.values()), None)


def _command(results: Path, address: Address) -> list[str]:
    """The command of the server, with the exact names that a browser may use for it: by default MLflow accepts every
    name that begins like a private address, such as 10.<anything>.
    """
    names = list(LOOPBACK)
    # guard: ui-address address.host -> address.host.replace(HERE, ".".join("0000"))
    options = ["--backend-store-uri", store_uri(results), "--host", address.host, "--port", str(address.port)]
    if address.host not in LOOPBACK:
        names = _names_of_this_machine() if _is_any(address.host) else [address.host]
        options += ["--cors-allowed-origins", ",".join(f"http://{_in_url(name)}:{address.port}" for name in names)]
    allowed = ",".join(pattern for name in names for pattern in _host_patterns(name))
    # guard: ui-allowed-hosts , "--allowed-hosts", allowed ->
    return [sys.executable, "-m", "mlflow", "server", *options, "--allowed-hosts", allowed, "--workers", "1"]


def _environment() -> dict[str, str]:
    # guard: ui-environment not in UNSAFE_VARIABLES ->
    return {name: value for name, value in os.environ.items() if name not in UNSAFE_VARIABLES}


def _names_of_this_machine() -> list[str]:
    kinds = (socket.AF_INET, socket.AF_INET6)
    addresses = [each.address for them in psutil.net_if_addrs().values() for each in them if each.family in kinds]
    return [*LOOPBACK, socket.gethostname(), *(each for each in addresses if "%" not in each)]


def _host_patterns(name: str) -> tuple[str, str]:
    """Patterns for a Host header with this name, without a port and with any port, because a tunnel may use another
    one. '[' begins a set of characters in such a pattern, so it is quoted.
    """
    name = _in_url(name)
    return name, f"{name.replace('[', '[[]', 1)}:*"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_any(host: str) -> bool:
    """Whether a host stands for all addresses of this machine, as :: does."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _answers(base: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base}/health", timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False
