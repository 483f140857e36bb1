"""The links of `harness ui`. The server itself is tested in tests/system/test_tracking_ui.py."""

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
    advice = "`harness sync` writes it again from the records"
    with pytest.raises(ExecutionError, match=f"mlflow.db is damaged, or is not an SQLite database of MLflow; {advice}"):
        ui.serve(tmp_path, 5000, None, print)


def test_the_ui_refuses_an_unknown_suite_and_names_the_known(suite, results, record_of):
    Mirror(results, pytest.fail).show(record_of(suite.trials[0]))
    with pytest.raises(ExecutionError, match=r"no suite 'tyni' in .*mlflow\.db \(known: tiny\)"):
        ui.serve(results, 5000, "tyni", print)
