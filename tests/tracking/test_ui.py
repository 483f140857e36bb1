"""The links of `harness ui`. The server itself is tested in tests/system/test_tracking_ui.py."""

import socket

import pytest

from harness.errors import ExecutionError
from harness.tracking import ui
from harness.tracking.sync import Mirror
from harness.tracking.ui import deep_link


def test_the_deep_link_opens_the_runs_of_the_suite():
    base = "http://127.0.0.1:5000"
    runs = f"{base}/#/experiments/7/runs?workflowType=machine_learning"
    assert deep_link(base, "7") == f"{runs}&viewStateShareKey=harness-runs"
    assert deep_link(base, "7", charts=True) == f"{runs}&compareRunsMode=CHART&viewStateShareKey=harness-curves"
    assert deep_link(base, None) == f"{base}/#/experiments"


def test_a_damaged_database_is_one_sentence_that_says_what_to_do(tmp_path):
    (tmp_path / "mlflow.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    said = r"MLflow cannot use .*mlflow\.db \(.*\); `harness sync` writes it again from the records"
    with pytest.raises(ExecutionError, match=said):
        ui.serve(tmp_path, 5000, None, print)


def test_the_ui_refuses_an_unknown_suite_and_names_the_known(suite, results, record_of):
    Mirror(results).show(record_of(suite.trials[0]))
    with pytest.raises(ExecutionError, match=r"no suite 'tyni' in .*mlflow\.db \(known: tiny\)"):
        ui.serve(results, 5000, "tyni", print)


def test_a_port_that_any_program_has_is_taken(suite, results, record_of):
    Mirror(results).show(record_of(suite.trials[0]))
    with socket.create_server((ui.HERE, 0)) as other:  # it answers nothing
        port = other.getsockname()[1]
        with pytest.raises(ExecutionError, match=f"port {port} is taken; choose another with --port"):
            ui.serve(results, port, None, print)
