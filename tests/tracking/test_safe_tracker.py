"""A fault of MLflow is one warning."""

import pytest

from harness.tracking.safe_tracker import SafeTracker
from harness.tracking.tracker import Tracker


@pytest.mark.guards("tracking-fault-is-warning", "tracking-off-after-fault")
def test_tracking_turns_a_fault_into_one_warning_and_goes_on(results):
    warnings, asked = [], []
    safe = SafeTracker(results, warnings.append)

    def fault(tracker):
        asked.append(tracker)
        raise OSError("disk\nfull")

    for _ in range(3):
        safe.call(fault)
    assert len(asked) == 1
    assert warnings == ["MLflow is off from here on (OSError: disk); `harness sync` rebuilds it later"]


def test_tracking_survives_a_store_that_cannot_be_opened(tmp_path, monkeypatch):
    monkeypatch.setattr("mlflow.store.db.utils.time.sleep", lambda seconds: None)  # it tries ten times, for 100 s
    (tmp_path / "mlflow.db").mkdir()
    warnings, asked = [], []
    safe = SafeTracker(tmp_path, warnings.append)
    safe.call(asked.append)
    assert asked == []
    assert warnings[0].startswith("MLflow is off from here on (")


def test_tracking_opens_the_store_once(results):
    asked = []
    safe = SafeTracker(results, print)
    safe.call(asked.append)
    safe.call(asked.append)
    assert isinstance(asked[0], Tracker)
    assert asked[0] is asked[1]


def test_no_tracking_asks_nothing():
    asked, warnings = [], []
    SafeTracker(None, warnings.append).call(asked.append)
    assert asked == []
    assert warnings == []
