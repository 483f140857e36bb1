"""`harness ui` with a real server: the link shows the suite's runs, and other machines and pages are refused."""

import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request

import commands
import handmade
import psutil
import pytest

from harness import plan
from harness.records import store
from harness.tracking.sync import Mirror

API = "/ajax-api/2.0/mlflow"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A results folder whose database shows four trials of the tiny suite."""
    folder = tmp_path_factory.mktemp("shown")
    (folder / "tiny.yaml").write_text(commands.SUITE)
    mirror = Mirror(folder / "results")
    for spec in plan.load(folder / "tiny.yaml").trials:
        record = handmade.record(suite="tiny", spec=spec, metrics={"test_ppl": 9.0})
        store.save(record, folder / "results" / "runs" / "tiny")
        mirror.show(record)
    return folder


@pytest.fixture(scope="module")
def port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def link(folder, port):
    """What `harness ui` printed; it serves as long as the tests last, in an environment that would open it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "true")
        patch.setenv("MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", "*")
        patch.setenv("MLFLOW_SERVER_ALLOWED_HOSTS", "*")
        process = commands.started(folder, "ui", "tiny", "--port", port)
    try:
        printed, end = (process.stdout.readline() for _ in range(2))
        assert end.endswith("Ctrl-C ends it.\n"), process.stderr.read()
        deadline = time.monotonic() + commands.PATIENCE
        while port not in {each.laddr.port for each in listening()}:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.3)
        yield printed
        process.send_signal(signal.SIGINT)
        process.wait(timeout=commands.PATIENCE)
        assert port not in {each.laddr.port for each in listening()}
    finally:
        process.kill()
        process.communicate()


def listening() -> list:
    return [each for each in psutil.net_connections("inet") if each.status == psutil.CONN_LISTEN]


def asked(port: int, path: str, content: dict | None = None, **headers) -> tuple[int, str]:
    """Status and body of a request, as curl would make it; a POST when there is content."""
    body = None if content is None else json.dumps(content).encode()
    named = {name.capitalize(): value for name, value in headers.items()} | {"Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=named),
            timeout=commands.PATIENCE,
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_the_link_opens_the_runs_of_the_suite(link, port):
    experiment = re.match(rf"http://127\.0\.0\.1:{port}/#/experiments/(\d+)/runs\?workflowType=", link)[1]
    status, body = asked(port, f"{API}/experiments/get?experiment_id={experiment}")
    assert (status, json.loads(body)["experiment"]["name"]) == (200, "tiny")
    status, body = asked(port, f"{API}/runs/search", {"experiment_ids": [experiment]})
    assert (status, len(json.loads(body)["runs"])) == (200, 4)
    assert asked(port, "/")[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "10.evil.example", "192.168.evil.example", "localhost.evil.example"])
def test_ui_bind_a_foreign_host_header_is_refused(link, port, host):
    assert asked(port, f"{API}/experiments/get?experiment_id=0", host=host)[0] == 403
    assert asked(port, f"{API}/experiments/get?experiment_id=0", host=f"{host}:{port}")[0] == 403


@pytest.mark.parametrize("host", ["localhost:6000", "127.0.0.1", "[::1]:7000"])
def test_ui_bind_the_host_header_of_a_tunnel_is_served(link, port, host):
    assert asked(port, f"{API}/experiments/get?experiment_id=0", host=host)[0] == 200


def test_ui_bind_a_cross_origin_post_is_refused(link, port):
    content = {"name": "planted"}
    assert asked(port, f"{API}/experiments/create", content, origin="http://evil.example")[0] == 403
    assert "planted" not in asked(port, f"{API}/experiments/search", {"max_results": 100})[1]


def test_ui_bind_every_socket_is_of_this_machine_only(link, port):
    assert {each.laddr.ip for each in listening() if each.laddr.port == port} == {"127.0.0.1"}
