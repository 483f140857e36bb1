"""`harness export` and `harness import`: what one machine finished counts on another, whole, or nothing of it does."""

import json
import math

import bundles
import handmade
import pytest
from bundles import files, keep, members, planned, record_of

from harness.code import fingerprints
from harness.exchange.copying import export_records, import_records
from harness.records import sidecars, store


@pytest.fixture
def there(tmp_path):
    """A results folder with two finished trials and one that failed, of a suite of four."""
    folder = tmp_path / "there"
    one, two, three, _ = planned(tmp_path)
    keep(folder, record_of(one, contents=bundles.contents_of(tmp_path)))
    keep(folder, record_of(two))
    keep(folder, record_of(three, status="diverged", metrics={}, weights_sha256=None), timed=False, scored=False)
    return folder


@pytest.fixture
def sent(there, tmp_path):
    """Its export."""
    export_records(there, tmp_path / "records.zip")
    return tmp_path / "records.zip"


@pytest.fixture
def here(tmp_path):
    """An empty results folder."""
    return tmp_path / "here"


def test_what_is_exported_and_imported_is_the_same_files(there, sent, here, harness):
    done = harness("import", sent, "--results", here)
    assert (done.code, done.err) == (0, "")
    assert "3 new records, 0 replaced, 0 known already" in done.out
    assert files(here) == files(there)
    assert len(files(here)) == 7


def test_one_trial_is_exported_alone_and_an_unknown_one_is_refused(there, here, tmp_path, harness):
    _, two, *_ = planned(tmp_path)
    assert harness("export", tmp_path / "two.zip", "--trial", two.id, "--results", there).code == 0
    harness("import", tmp_path / "two.zip", "--results", here)
    assert {path.split("/")[2] for path in files(here)} == {two.id}
    done = harness("export", tmp_path / "other.zip", "--trial", "0123456789ab", "--results", there)
    assert done.code == 2
    assert done.err == "no record of a trial '0123456789ab' among the 3 that --suite and --results choose\n"
    assert not (tmp_path / "other.zip").exists()


def test_an_import_says_how_many_records_are_not_certified(tmp_path, here, harness):
    one, two, three, _ = planned(tmp_path)
    keep(tmp_path / "older", record_of(one, certificate=None))
    keep(tmp_path / "older", record_of(two, certificate=None))
    keep(tmp_path / "older", record_of(three))
    export_records(tmp_path / "older", tmp_path / "records.zip")
    done = harness("import", tmp_path / "records.zip", "--results", here)
    assert done.code == 0
    assert "warning: 2 records without a certificate" in done.err


def test_an_import_names_a_record_that_says_ok_against_its_certificate(tmp_path, here, harness):
    one, two, *_ = planned(tmp_path)
    keep(tmp_path / "forged", record_of(one, certificate=handmade.certificate(sum_error=277.0)))
    keep(tmp_path / "forged", record_of(two))
    export_records(tmp_path / "forged", tmp_path / "records.zip")
    done = harness("import", tmp_path / "records.zip", "--results", here)
    assert done.code == 0
    (warning,) = done.err.splitlines()
    assert warning.startswith(f"warning: trial {one.id}: the record says ok, and its certificate says otherwise")
    assert store.load(here / "runs" / "small", one.id).status == "invalid"
    again = harness("import", tmp_path / "records.zip", "--results", here)
    assert "0 new records, 0 replaced, 2 known already" in again.out


def test_a_suite_finds_its_trials_finished_after_an_import(sent, here, tmp_path, harness):
    harness("import", sent, "--results", here)
    done = harness("plan", tmp_path / "suite.yaml", "--results", here, "--json")
    assert [trial["state"] for trial in json.loads(done.out)["trials"]] == ["ok", "ok", "diverged", "missing"]


def test_equal_records_are_equal_bytes_whenever_they_are_exported(there, sent, tmp_path):
    export_records(there, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == sent.read_bytes()


def test_weights_logs_checkpoints_and_what_was_set_aside_stay(there, tmp_path):
    folder = next((there / "runs" / "small").iterdir())
    for name in ("best.pt", "trial.log", "checkpoint-1-0.pt", "record.previous.json", "attempt.json"):
        (folder / name).write_bytes(b"x")
    export_records(there, tmp_path / "records.zip")
    kinds = {path.rpartition("/")[2] for path in members(tmp_path / "records.zip")}
    assert kinds == {"record.json", "timing.json", "test_nll.npz", "manifest.json"}


def test_scores_of_tokens_can_be_left_out(there, tmp_path, harness):
    done = harness("export", tmp_path / "records.zip", "--results", there, "--no-token-nll")
    assert "3 records of 1 suite, 2 timings:" in done.out
    assert not [path for path in members(tmp_path / "records.zip") if path.endswith(".npz")]


def test_suites_can_be_chosen(there, tmp_path, harness):
    (spec, *_) = planned(tmp_path)
    keep(there, record_of(spec, suite="other"))
    done = harness("export", tmp_path / "records.zip", "--results", there, "--suite", "other")
    assert (done.code, done.err) == (0, "")
    assert {path.partition("/")[0] for path in members(tmp_path / "records.zip")} == {"other", "manifest.json"}
    refused = harness("export", tmp_path / "more.zip", "--results", there, "--suite", "smal")
    assert refused.code == 2
    assert "no records of a suite 'smal'; did you mean 'small'? (known: other, small)" in refused.err
    assert not (tmp_path / "more.zip").exists()


def test_what_does_not_verify_is_named_and_left_out(there, tmp_path, harness):
    one, two, three = sorted((there / "runs" / "small").iterdir())[:3]
    finished = [each for each in (one, two, three) if (each / "timing.json").exists()]
    (finished[0] / "timing.json").write_text("{}")
    (finished[1] / "record.json").write_text("{}")
    done = harness("export", tmp_path / "records.zip", "--results", there)
    assert done.code == 0
    assert [line.startswith("warning: ") for line in done.err.splitlines()] == [True, True]
    kept = members(tmp_path / "records.zip")
    assert f"small/{finished[0].name}/record.json" in kept
    assert f"small/{finished[0].name}/timing.json" not in kept
    assert not [path for path in kept if finished[1].name in path]


@pytest.mark.parametrize("damaged", [False, True])
def test_without_a_record_there_is_no_export(tmp_path, harness, damaged):
    if damaged:
        (tmp_path / "runs" / "small" / "0123456789ab").mkdir(parents=True)
        (tmp_path / "runs" / "small" / "0123456789ab" / "record.json").write_text("{}")
    done = harness("export", tmp_path / "records.zip", "--results", tmp_path)
    assert done.code == 2
    assert "holds no record that verifies" in done.err
    assert not [path for path in tmp_path.iterdir() if path.name != "runs"]


def test_a_file_that_is_there_is_not_written_over(there, tmp_path, harness):
    (tmp_path / "thesis.tex").write_text("a year's work")
    done = harness("export", tmp_path / "thesis.tex", "--results", there)
    assert done.code == 2
    assert done.err == f"{tmp_path / 'thesis.tex'} exists already; name another file, or remove it\n"
    assert (tmp_path / "thesis.tex").read_text() == "a year's work"


def test_more_than_a_file_holds_is_a_sentence(there, tmp_path, harness, monkeypatch):
    monkeypatch.setattr("zipfile.ZIP_FILECOUNT_LIMIT", 4)
    done = harness("export", tmp_path / "records.zip", "--results", there)
    assert done.code == 2
    assert "export one suite at a time (--suite)" in done.err
    assert not (tmp_path / "records.zip").exists()


def test_a_second_import_changes_nothing(sent, here, harness):
    harness("import", sent, "--results", here)
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*") if path.is_file()}
    done = harness("import", sent, "--results", here)
    assert "0 new records, 0 replaced, 3 known already" in done.out
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*") if path.is_file()} == before


def test_what_is_missing_beside_a_known_record_is_added(there, sent, here):
    import_records(sent, here)
    lost = sorted((here / "runs").rglob("test_nll.npz"))
    torn = sorted((here / "runs").rglob("timing.json"))
    lost[0].unlink()
    torn[0].write_text("{")
    assert import_records(sent, here).known == 3
    assert files(here) == files(there)


def changed(here, tmp_path):
    """Another record of the first trial, in a results folder, with what lies beside it."""
    (spec, *_) = planned(tmp_path)
    other = record_of(spec, weights_sha256="cd" * 32)
    return keep(here, other), other


@pytest.mark.guards("import-conflicts")
def test_a_different_record_is_a_conflict_and_nothing_is_written(sent, here, tmp_path, harness):
    folder, _ = changed(here, tmp_path)
    before = files(tmp_path)
    done = harness("import", sent, "--results", here)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert f"holds 1 other result than this file: small/{folder.name}; nothing was imported" in done.err
    assert files(tmp_path) == before


def test_replace_sets_the_other_record_aside_and_what_lay_beside_it_goes(there, sent, here, tmp_path, harness):
    folder, other = changed(here, tmp_path)
    bare = tmp_path / "bare.zip"
    export_records(there, bare, token_nll=False)
    done = harness("import", bare, "--results", here, "--replace")
    assert (done.code, done.err) == (0, "")
    assert "2 new records, 1 replaced, 0 known already" in done.out
    previous = (folder / "record.previous.json").read_bytes()
    assert store.parsed(previous, other.id, folder) == other
    assert not (folder / sidecars.TOKEN_NLL.file).exists()  # it was of the other weights
    expected = {path: content for path, content in files(there).items() if not path.endswith(".npz")}
    assert {path: c for path, c in files(here).items() if not path.endswith("previous.json")} == expected


def test_a_damaged_record_here_is_no_conflict(there, sent, here):
    import_records(sent, here)
    place = sorted((here / "runs").rglob("record.json"))[0]
    place.write_text("{")
    taken = import_records(sent, here)
    assert (taken.new, taken.known) == (1, 2)
    assert place.with_name("record.bad").read_text() == "{"


@pytest.mark.guards("import-contradiction")
def test_other_results_of_a_trial_in_another_suite_are_told_and_none_is_replaced(sent, here, tmp_path, harness):
    one, two, three, _ = planned(tmp_path)
    better = {"test_ppl": 1.5, "scored_test_tokens": 3.0}
    other = keep(here, record_of(one, suite="other", metrics=better), timed=False, scored=False)
    equal = keep(here, record_of(two, suite="other", metrics={**record_of(two).metrics, "train_minutes": 9.0}))
    keep(here, record_of(three, suite="other"))  # ok here, failed there: that is no other result
    before = {place: files(place) for place in (other, equal)}
    done = harness("import", sent, "--results", here)
    assert done.code == 0
    assert done.err == (
        f"warning: trial {one.id} has different results in the suites small and other; the leaderboard leaves it out\n"
    )
    assert {place: files(place) for place in before} == before


@pytest.mark.guards("invalid-in-another-suite")
def test_an_import_names_a_trial_that_is_invalid_in_another_suite(sent, here, tmp_path, harness):
    (one, *_) = planned(tmp_path)
    keep(here, record_of(one, suite="other", status="invalid"), timed=False, scored=False)
    done = harness("import", sent, "--results", here)
    assert f"trial {one.id} has different results in the suites small and other" in done.err


def test_a_trial_that_is_being_run_here_is_not_waited_for(sent, here, tmp_path, harness):
    (spec, *_) = planned(tmp_path)
    with store.writing(store.runs_folder(here, "small"), spec.id):
        done = harness("import", sent, "--results", here)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert f"{spec.id}.lock" in done.err
    assert harness("import", sent, "--results", here).code == 0


def test_a_place_that_cannot_be_written_is_one_sentence(sent, tmp_path, harness):
    (tmp_path / "file").write_text("")
    done = harness("import", sent, "--results", tmp_path / "file")
    assert done.code == 2
    assert done.err.count("\n") == 1


def test_records_whose_ids_cannot_be_computed_here_are_counted(there, tmp_path, here, harness):
    (spec, *_) = planned(tmp_path)
    unknown = spec.model_copy(update={"id": "0" * 12, "head": spec.head.model_copy(update={"name": "of_a_plug_in"})})
    keep(there, record_of(unknown))
    export_records(there, tmp_path / "records.zip")
    done = harness("import", tmp_path / "records.zip", "--results", here)
    assert done.code == 0
    assert done.err.startswith("warning: 1 record whose id could not be checked")
    assert files(here) == files(there)


def test_records_by_other_code_than_is_here_are_counted_and_taken_in(there, tmp_path, here, harness):
    (spec, other, *_) = planned(tmp_path)
    keep(there, record_of(spec, code=fingerprints.of_trial(spec)))
    keep(there, record_of(other, code=fingerprints.of_trial(other).model_copy(update={"head": "0" * 64})))
    export_records(there, tmp_path / "records.zip")
    done = harness("import", tmp_path / "records.zip", "--results", here)
    assert done.code == 0
    assert done.err == ("warning: 1 record made by other code than is here; `harness plan` shows what is outdated\n")
    assert files(here) == files(there)


def test_a_failed_trials_record_travels_too(sent, here):
    import_records(sent, here)
    runs = store.runs_folder(here, "small")
    found, _ = store.load_all(runs, [path.name for path in runs.iterdir()])
    assert sorted(record.status for record in found.values()) == ["diverged", "ok", "ok"]
    assert {record.metrics.get("test_ppl") for record in found.values()} == {math.exp(2.0), None}
