"""The links of `harness ui`. The server itself is tested in tests/system/test_tracking_ui.py."""

import socket

import pytest

from harness.errors import ExecutionError
from harness.tracking import ui
from harness.tracking.sync import Mirror


def test_a_damaged_database_is_one_sentence_that_says_what_to_do(tmp_path):
    (tmp_path / "mlflow.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    said = r"MLflow cannot use .*mlflow\.db \(.*\); `harness sync` writes it again from the records"
    with pytest.raises(ExecutionError, match=said):
        ui.serve(tmp_path, 5000, None, print)


def test_a_port_that_any_program_has_is_taken(suite, results, record_of):
    Mirror(results).show(record_of(suite.trials[0]))
    with socket.create_server((ui.HERE, 0)) as other:  # it answers nothing
        port = other.getsockname()[1]
        with pytest.raises(ExecutionError, match=f"port {port} is taken; choose another with --port"):
            ui.serve(results, port, None, print)


def test_the_page_of_a_suite_is_that_of_its_trials_and_an_unknown_suite_is_refused(suite, results, record_of):
    Mirror(results).show(record_of(suite.trials[0]))
    assert ui.page(results, None) == "/experiments"
    assert ui.page(results, "tiny") == (
        "/experiments/1/runs?workflowType=machine_learning&searchFilter=tags.stage%20%3D%20%27table%27"
        "&orderByKey=metrics.%60test%2Fppl%60&orderByAsc=true"
    )
    with pytest.raises(ExecutionError, match=r"no suite 'tyni' in .*mlflow\.db \(known: tiny\)"):
        ui.serve(results, 5000, "tyni", print)
