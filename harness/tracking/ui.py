"""MLflow's UI, `mlflow server`, reachable from this machine only: `harness ui` becomes this process."""

import os
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

from harness.errors import ExecutionError
from harness.tracking import database

HERE = "127.0.0.1"
NAMES = (HERE, "localhost", "[::1]")  # by which a browser may call the server; a tunnel may have another port
# Variables of the user's environment that would let other hosts or pages use the server.
UNSAFE_VARIABLES = ("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS")
ARTIFACTS = "artifacts"  # of the results folder: files that a user logs through the server


def serve(results: Path, port: int, suite: str | None) -> None:
    """Print the link and run MLflow's server in place of this process, which ends with Ctrl-C or with its terminal.

    Args:
        suite: the suite whose runs the link opens; None for the list of suites.
    Raises: ExecutionError: there is no database, or the suite is unknown.
    """
    page_of_suite = page(results, suite)
    environment = {name: value for name, value in os.environ.items() if name not in UNSAFE_VARIABLES}
    print(f"http://{HERE}:{port}/#{page_of_suite}\nThe server says below when it runs; Ctrl-C ends it.", flush=True)
    os.execve(sys.executable, command(results, port), environment)


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
    asked = {"searchFilter": "tags.stage = 'table'", "orderByKey": "metrics.`test_ppl`", "orderByAsc": "true"}
    question = urlencode({"workflowType": "machine_learning", **asked}, quote_via=quote)
    return f"/experiments/{experiment.experiment_id}/runs?{question}"


def command(results: Path, port: int) -> list[str]:
    """The command of the server, with the exact names that a browser may use for it: by default MLflow accepts every
    name that begins like a private address, such as 10.<anything>. In its patterns '[' begins a set of characters.
    """
    allowed = ",".join(pattern for name in NAMES for pattern in (name, f"{name.replace('[', '[[]', 1)}:*"))
    artifacts = (results.absolute() / ARTIFACTS).as_uri()
    options = ["--backend-store-uri", database.address(results), "--artifacts-destination", artifacts]
    options += ["--host", HERE, "--port", str(port), "--workers", "1"]
    return [sys.executable, "-m", "mlflow", "server", *options, "--allowed-hosts", allowed]
