"""What was run, and what it took, read from the records alone."""

import handmade
import pytest

from harness import plan
from harness.records import contents, store
from harness.report import history


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "small.yaml"
    path.write_text(handmade.SMALL)
    return plan.load(path).trials


def saved(results, trial, status="ok", metrics=None, **environment) -> None:
    where = handmade.environment(**environment)
    record = handmade.record(spec=trial, status=status, metrics=metrics or {}, environment=where)
    store.save(record, results / "runs" / "small")


def of_small(results, warn=pytest.fail) -> dict:
    """The line of the suite."""
    (line,) = history.by_suite(history.trials(results, ["small"], warn)).to_dict("records")
    return line


def test_trials_are_counted_by_status_and_their_times_added_for_each_worker(trials, tmp_path):
    first, second, third, fourth = trials
    parallel = second.model_copy(update={"train": second.train.model_copy(update={"data_parallel": 4})})
    saved(tmp_path, first, metrics={"train_minutes": 2.5}, started="2026-01-02T03:00:00+00:00")
    saved(tmp_path, parallel, metrics={"train_minutes": 2.0}, finished="2026-01-02T06:30:00+02:00", device="a GPU")
    saved(tmp_path, third, "error", started="2026-01-02T03:10:00+00:00")
    begun = tmp_path / "runs" / "small" / fourth.id
    begun.mkdir()
    (begun / "checkpoint-000001.pt").write_bytes(b"0" * 12_345)
    (tmp_path / "elsewhere").write_bytes(b"0" * 1_000_000)
    (begun / "link").symlink_to(tmp_path / "elsewhere")
    found = of_small(tmp_path)
    assert found["trials"] == {"ok": 2, "error": 1, "interrupted": 1}
    assert found["device_minutes"] == 2.5 + 4 * 2.0
    assert found["wall_minutes"] == 90.0  # from 3:00 to 4:30 of UTC
    assert found["finished"] == "2026-01-02T04:30:00+00:00"
    assert found["devices"] == ["a GPU", "a processor"]
    records = sum(place.stat().st_size for place in (tmp_path / "runs").rglob("record.json"))
    assert 0 <= found["bytes"] - records - 12_345 < 1_000  # the link itself, not what it points to


@pytest.mark.parametrize("moment", [None, "yesterday", "0001-01-01T00:00:00+23:59"])
def test_a_record_that_is_damaged_or_has_no_date_is_told_of_and_not_counted(trials, tmp_path, moment):
    saved(tmp_path, trials[0], **({"started": moment, "finished": moment} if moment else {}))
    place = tmp_path / "runs" / "small" / trials[0].id / "record.json"
    if moment is None:
        place.write_bytes(place.read_bytes().replace(b"seed", b"sead"))
    told = []
    found = of_small(tmp_path, told.append)
    assert (found["trials"], found["device_minutes"], found["finished"]) == ({"no record": 1}, 0, None)
    assert [sentence.partition(":")[0] for sentence in told] == [str(place)]


def test_records_of_other_settings_and_of_another_text_are_counted(tmp_path):
    (tmp_path / "small.yaml").write_text(handmade.SMALL)
    suite = plan.load(tmp_path / "small.yaml")
    first, second, *_ = suite.trials
    runs = store.runs_folder(tmp_path, "small")
    saved(tmp_path, first)
    assert contents.of_others(suite, runs) == ""
    saved(tmp_path, second.model_copy(update={"id": "0" * 12}))  # the id of another text
    saved(tmp_path, second.model_copy(update={"id": "1" * 12, "seed": 99}))
    assert contents.of_others(suite, runs) == (
        "2 records here are of other settings or texts than the suite has now (1 of the same settings: their text or "
        "weights have changed since); `harness runs small` lists all"
    )


def test_folders_without_trials_are_no_suites(trials, tmp_path):
    assert history.suites(tmp_path) == []
    saved(tmp_path, trials[0])
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "locked" / ".locks").mkdir(parents=True)
    (tmp_path / "runs" / ".mlflow.lock").write_text("")
    assert history.suites(tmp_path) == ["small"]
