"""Who can connect while trials run: nobody inline; under Ray nobody without its token, and there is no dashboard."""

import contextlib
import re
from types import SimpleNamespace

import commands
import psutil
import pytest

DASHBOARD_PORT = 8265
DASHBOARDS = r"dashboard/(dashboard|agent)\.py|DashboardAgent"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "tiny.yaml").write_text(commands.SUITE)
    return tmp_path


@pytest.fixture
def while_training(folder, monkeypatch):
    """A function: executor -> the driver and its descendants in the midst of a run, each as `_seen` shows it."""
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    process = None

    def begin(executor: str) -> list[SimpleNamespace]:
        nonlocal process
        options = ("--executor", executor, "--set", "train.epochs=50000")
        process = commands.started(folder, "run", "suites/tiny.yaml", *options)
        assert any(line.startswith("epoch ") for line in process.stdout), process.stderr.read()
        driver = psutil.Process(process.pid)
        seen = []
        for each in (driver, *driver.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                seen.append(_seen(each))
        return seen

    yield begin
    process.terminate()
    process.communicate(timeout=commands.PATIENCE)


def _seen(process: psutil.Process) -> SimpleNamespace:
    connections = [each for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN]
    ports = {each.laddr.port for each in connections}
    return SimpleNamespace(line=" ".join(process.cmdline()), ports=ports, environment=process.environ())


def test_nothing_listens_while_trials_run_inline(while_training):
    seen = while_training("inline")
    assert set().union(*(each.ports for each in seen)) == set()


def test_ray_token_on_and_no_dashboard_while_trials_run_under_ray(while_training):
    seen = while_training("ray")
    servers = [each for each in seen if re.search(r"/(gcs_server|raylet) ", each.line)]
    assert len(servers) == 2
    assert {each.environment.get("RAY_AUTH_MODE") for each in servers} == {"token"}
    assert DASHBOARD_PORT not in set().union(*(each.ports for each in seen))
    dashboards = [each for each in seen if each not in servers and re.search(DASHBOARDS, each.line)]
    assert [each.line for each in dashboards if each.ports] == []
