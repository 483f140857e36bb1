"""MLflow's UI as a process of its own: bound to this machine, its middleware on, and the link that shows something."""

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
from harness.tracking.mlflow_runs import opened, store_uri
from harness.tracking.run_content import CURVES_VIEW, RUNS_VIEW

HERE = "127.0.0.1"
LOOPBACK = (HERE, "localhost", "::1")
OPENING = ("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS")  # of a user's environment
UI_SECONDS = 60
UI_LOG = ".mlflow-ui.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the UI listens; `remote` allows an address that other machines reach."""

    host: str = HERE
    port: int = 5000
    remote: bool = False

    @property
    def base(self) -> str:
        """The address to open on this machine."""
        return f"http://{_bracketed(HERE if _is_any(self.host) else self.host)}:{self.port}"


def serve(results: Path, address: Address, suite: str | None, announce: Callable[[str], None]) -> int:
    """Start the UI, announce its deep link when it answers, and stay until it ends; its exit code.

    Raises: ExecutionError when there is nothing to show, the suite is unknown, the address is not this machine's alone,
        or the UI does not come up.
    """
    _refuse_remote(address)
    shown = _experiment(results, suite)
    base = address.base
    if _answers(base):
        raise ExecutionError(f"port {address.port} is taken; choose another with --port")
    log = results / "runs" / UI_LOG
    with log.open("wb") as output:
        server = ui_server.start(_command(results, address), stdout=output, stderr=output, env=_environment())
    try:
        deadline = time.monotonic() + UI_SECONDS
        while not _answers(base):
            if server.poll() is not None or time.monotonic() > deadline:
                raise ExecutionError(f"the MLflow UI did not come up on {base}; its log is {log}")
            time.sleep(0.3)
        announce(f"runs:   {deep_link(base, shown)}\ncurves: {deep_link(base, shown, charts=True)}\nCtrl-C ends it")
        return server.wait()
    finally:
        ui_server.end(server)


def deep_link(base: str, experiment: str | None, *, charts: bool = False) -> str:
    """An experiment's runs in a view of ours: the best first, or the curves. The UI's own landing page is an empty
    overview of something else, and its run table shows no metric until columns are chosen.
    """
    if experiment is None:
        return f"{base}/#/experiments"
    view = f"&compareRunsMode=CHART&viewStateShareKey={CURVES_VIEW}" if charts else f"&viewStateShareKey={RUNS_VIEW}"
    return f"{base}/#/experiments/{experiment}/runs?workflowType=machine_learning{view}"


def _refuse_remote(address: Address) -> None:
    if address.host not in LOOPBACK and not address.remote:
        raise ExecutionError(
            f"--host {address.host} lets other machines read and change the runs without a password; tunnel instead "
            f"(ssh -L {address.port}:{HERE}:{address.port} <this machine>), or insist with --allow-remote"
        )


def _experiment(results: Path, suite: str | None) -> str | None:
    """The id of what to open: the suite asked for, else the one last written."""
    place = results / DATABASE
    if not database.exists(results):
        raise ExecutionError(f"{place} does not exist: run a suite first, or `harness sync`")
    try:
        found = opened(results).search_experiments(order_by=["last_update_time DESC"])
    except database.UnusableDatabase as fault:
        raise ExecutionError(f"{fault}; `harness sync` builds it anew") from fault
    experiments = {each.name: each.experiment_id for each in found if each.name != "Default"}
    if suite is not None and suite not in experiments:
        raise ExecutionError(f"no suite '{suite}' in {place} (known: {', '.join(sorted(experiments))})")
    return experiments[suite] if suite else next(iter(experiments.values()), None)


def _command(results: Path, address: Address) -> list[str]:
    """The server, told which names it may be called by: MLflow's own list takes any name like 10.<something>."""
    names = list(LOOPBACK)
    options = ["--backend-store-uri", store_uri(results), "--host", address.host, "--port", str(address.port)]
    if address.host not in LOOPBACK:
        names = _names() if _is_any(address.host) else [address.host]
        options += ["--cors-allowed-origins", ",".join(f"http://{_bracketed(name)}:{address.port}" for name in names)]
    allowed = ",".join(pattern for name in names for pattern in _patterns(name))
    return [sys.executable, "-m", "mlflow", "server", *options, "--allowed-hosts", allowed, "--workers", "1"]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OPENING}


def _names() -> list[str]:
    """What this machine is called by others."""
    kinds = (socket.AF_INET, socket.AF_INET6)
    addresses = [each.address for them in psutil.net_if_addrs().values() for each in them if each.family in kinds]
    return [*LOOPBACK, socket.gethostname(), *(each for each in addresses if "%" not in each)]


def _patterns(name: str) -> tuple[str, str]:
    """A name as a Host header may hold it, with any port: a tunnel's differs. '[' opens a set in such a pattern."""
    name = _bracketed(name)
    return name, f"{name.replace('[', '[[]', 1)}:*"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_any(host: str) -> bool:
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
