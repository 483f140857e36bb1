"""A results folder whose name is odd to an address: every command works there, and nothing is written elsewhere."""

import json
import socket
import urllib.error
import urllib.request

import pytest
from disturbed import wait_for

pytestmark = pytest.mark.timeout(1800)  # Ray and MLflow start slowly on a busy machine
ODD = "re sults c=d#e"


@pytest.fixture(scope="module")
def ran(module_place):
    """The suite run under Ray, with tracking, into such a folder."""
    here = module_place("softmax")
    done = here.run("--results", ODD)
    return here, done


def test_run_under_ray_logs_to_mlflow(ran):
    here, done = ran
    assert (done.returncode, done.stderr) == (0, "")
    assert f"ui tiny --results '{ODD}'" in done.stdout
    assert (here.folder / ODD / "mlflow.db").is_file()
    assert sorted(each.name for each in here.folder.iterdir()) == sorted([ODD, "marks", "suites"])


def test_every_command_that_reads_or_writes_there_works(ran, harness, monkeypatch):
    here, _ = ran
    monkeypatch.chdir(here.folder)
    commands = [
        ("table", "suites/tiny.yaml"),
        ("report", "suites/tiny.yaml"),
        ("plan", "suites/tiny.yaml"),
        ("sync",),
        ("runs",),
        ("leaderboard",),
        ("export", "records.zip"),
        ("import", "records.zip"),
    ]
    for command in commands:
        done = harness(*command, "--results", ODD)
        lines = done.err.splitlines()
        said = [line for line in lines if not line.startswith("warning: no plot ")]  # of a report this small
        assert (done.code, said) == (0, []), command
    assert sorted(each.name for each in here.folder.iterdir()) == sorted([ODD, "marks", "records.zip", "suites"])


def answered(address: str) -> bytes | None:
    """None while no server answers."""
    try:
        with urllib.request.urlopen(address, timeout=200) as answer:
            return answer.read()
    except urllib.error.URLError:
        return None


def test_the_ui_shows_its_runs(ran):
    here, _ = ran
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = here.command("ui", "tiny", "--results", ODD, "--port", port)
    try:
        line = wait_for(process.stdout.readline, 600)
        experiment = line.split("/experiments/")[1].partition("/")[0]
        asked = f"http://127.0.0.1:{port}/ajax-api/2.0/mlflow/experiments/get?experiment_id={experiment}"
        answer = wait_for(lambda: answered(asked), 600)
        assert json.loads(answer)["experiment"]["name"] == "tiny"
    finally:
        process.terminate()
        here.end(process)
