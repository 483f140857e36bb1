"""The links of `harness ui`. The server itself is tested in tests/system/test_tracking_ui.py."""

import pytest

from harness.errors import ExecutionError
from harness.tracking import ui
from harness.tracking.sync import Mirror


def test_a_damaged_database_is_one_sentence_that_says_what_to_do(tmp_path):
    (tmp_path / "mlflow.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    said = r"MLflow cannot use .*mlflow\.db \(.*\); `harness sync` writes it again from the records"
    with pytest.raises(ExecutionError, match=said):
        ui.serve(tmp_path, 5000, None)


def test_the_page_of_a_suite_is_that_of_its_trials_and_an_unknown_suite_is_refused(suite, results, record_of):
    Mirror(results).show(record_of(suite.trials[0]))
    assert ui.page(results, None) == "/experiments"
    assert ui.page(results, "tiny") == (
        "/experiments/1/runs?workflowType=machine_learning&searchFilter=tags.stage%20%3D%20%27table%27"
        "&orderByKey=metrics.%60test_ppl%60&orderByAsc=true"
    )
    with pytest.raises(ExecutionError, match=r"no suite 'tyni' in .*mlflow\.db \(known: tiny\)"):
        ui.serve(results, 5000, "tyni")
