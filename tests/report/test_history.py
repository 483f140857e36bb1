"""What was run, and what it took, read from records alone."""

import handmade
import pytest

from harness import plan
from harness.plan.specs import ComponentSpec
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


def total(results, tell=pytest.fail) -> dict:
    records = history.records_of(results, "small", tell)
    return history.total(results, "small", history.trials(results, "small", records))


def test_records_are_counted_by_status_and_their_times_added(trials, tmp_path):
    first, second, third, _ = trials
    saved(tmp_path, first, metrics={"train_minutes": 2.5}, started="2026-01-02T03:00:00+00:00")
    saved(tmp_path, second, metrics={"train_minutes": 4.0}, finished="2026-01-02T06:30:00+02:00", device="a GPU")
    saved(tmp_path, third, "error", started="2026-01-02T03:10:00+00:00")
    found = total(tmp_path)
    assert found["records"] == {"ok": 2, "error": 1}
    assert found["device_minutes"] == 6.5
    assert found["wall_minutes"] == 90.0  # from 3:00 to 4:30 of UTC
    assert found["finished"] == "2026-01-02T04:30:00+00:00"
    assert found["devices"] == ["a GPU", "a processor"]


def test_the_devices_of_a_data_parallel_trial_all_count(trials, tmp_path):
    train = trials[0].train.model_copy(update={"data_parallel": 4})
    saved(tmp_path, trials[0].model_copy(update={"train": train}), metrics={"train_minutes": 2.0})
    assert total(tmp_path)["device_minutes"] == 8.0


def test_disk_space_is_that_of_every_file_and_links_are_not_followed(trials, tmp_path):
    saved(tmp_path, trials[0])
    folder = tmp_path / "runs" / "small" / trials[0].id
    before = total(tmp_path)["bytes"]
    assert before == (folder / "record.json").stat().st_size
    (folder / "weights.pt").write_bytes(b"0" * 12_345)
    (tmp_path / "elsewhere").write_bytes(b"0" * 1_000_000)
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    assert total(tmp_path)["bytes"] - before - 12_345 < 1_000


def test_a_damaged_record_is_told_of_and_not_counted(trials, tmp_path):
    saved(tmp_path, trials[0], metrics={"train_minutes": 2.5})
    saved(tmp_path, trials[1], metrics={"train_minutes": 4.0})
    place = tmp_path / "runs" / "small" / trials[1].id / "record.json"
    place.write_bytes(place.read_bytes().replace(b"4.0", b"4.5"))
    told = []
    found = total(tmp_path, told.append)
    assert (found["records"], found["device_minutes"]) == ({"ok": 1}, 2.5)
    assert [sentence.partition(":")[0] for sentence in told] == [str(place)]
    assert list(history.records_of(tmp_path, "small", told.append)) == [trials[0].id]


def test_a_trial_with_a_checkpoint_and_no_record_is_interrupted(trials, tmp_path):
    for trial in trials[:2]:
        place = tmp_path / "runs" / "small" / trial.id
        place.mkdir(parents=True)
        (place / "checkpoint-000001.pt").write_bytes(b"")
    saved(tmp_path, trials[0])
    found = total(tmp_path)
    assert (found["records"], found["interrupted"]) == ({"ok": 1}, 1)


@pytest.mark.parametrize("moment", ["yesterday", "", "0001-01-01T00:00:00+23:59"])
def test_a_record_whose_time_is_none_does_not_count(trials, tmp_path, moment):
    saved(tmp_path, trials[0], started=moment, finished=moment)
    told = []
    found = total(tmp_path, told.append)
    assert (found["records"], found["wall_minutes"], found["finished"]) == ({}, None, None)
    (sentence,) = told
    assert f"{trials[0].id}/record.json: started is '{moment}'" in sentence


def test_trials_come_in_the_order_in_which_they_finished(trials, tmp_path):
    saved(tmp_path, trials[0], finished="2026-01-02T03:05:05+00:00", metrics={"test_ppl": 9.0, "train_minutes": 0.5})
    saved(tmp_path, trials[2], "diverged", finished="2026-01-02T03:04:05+00:00")
    records = history.records_of(tmp_path, "small", pytest.fail)
    first, late = history.named("small", records, history.trials(tmp_path, "small", records))
    assert {**first, "status": "diverged", "head": "MoS 2", "test_ppl": None, "minutes": None} == first
    about = {"id": trials[0].id, "seed": 1, "test_ppl": 9.0, "minutes": 0.5, "device": "a processor"}
    assert {**late, **about} == late


def test_names_are_those_of_tables_with_the_labels_of_the_suite_and_unknown_components_in_full(
    trials, tmp_path, monkeypatch
):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "small.yaml").write_text("heads: [{mos: {num_mixtures: 2, label: two}}]")
    monkeypatch.chdir(tmp_path)
    affine = ComponentSpec(name="softmax", params={"projection": True})
    gone = ComponentSpec(name="gone", params={"k": 3})
    for seed, head in enumerate((affine, gone, trials[2].head), start=1):
        made_up = trials[0].model_copy(update={"id": f"{seed:012}", "head": head, "seed": seed})
        saved(tmp_path, made_up, finished=f"2026-01-02T03:04:0{seed}+00:00")
    found = history.records_of(tmp_path, "small", pytest.fail)
    rows = history.named("small", found, history.trials(tmp_path, "small", found))
    assert [row["head"] for row in rows] == ["affine softmax", "gone(k=3)", "two"]


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
