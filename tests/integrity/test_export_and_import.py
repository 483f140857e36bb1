"""`harness export` and `harness import`: what one machine finished counts on another, whole, or nothing of it does."""

import json

import handmade
import pytest
from bundles import files, keep, members, planned, record_of
from texts import lines

from harness import plan
from harness.code import hashes
from harness.exchange.copying import export_records, import_records
from harness.printable import counted
from harness.records import sidecars, store


@pytest.fixture
def there(tmp_path):
    """A results folder with two finished trials and one that failed, of a suite of four."""
    folder = tmp_path / "there"
    one, two, three, _ = planned(tmp_path)
    keep(folder, record_of(one))
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


def test_a_folder_that_cannot_be_made_is_a_sentence_and_nothing_is_written(sent, tmp_path, harness):
    (tmp_path / "file").write_text("x")
    for results in (tmp_path / "file", tmp_path / "file" / "below", "/proc/none"):
        done = harness("import", sent, "--results", results)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"{results}/runs cannot be written (")
        assert done.err.endswith("); nothing was written: name another folder by --results\n")


def of_a_plug_in(planned):
    head = planned[0].head.model_copy(update={"name": "of_a_plug_in"})
    return (record_of(planned[0].model_copy(update={"id": "0" * 12, "head": head})), record_of(planned[1]))


def of_other_code(planned):
    one, two, _ = planned
    other = hashes.of_trial(two).model_copy(update={"head": "0" * 64})
    return record_of(one, code=hashes.of_trial(one)), record_of(two, code=other)


def against_its_certificate(planned):
    return record_of(planned[0], certificate=handmade.certificate(sum_error=277.0)), record_of(planned[1])


@pytest.mark.parametrize(
    ("records", "said"),
    {
        of_a_plug_in: "1 record whose id could not be checked: made with plug-ins, or by another ver",
        of_other_code: "1 record made by other code than is here; `harness plan` shows what is outdated",
        against_its_certificate: "the record says ok, and its certificate says otherwise",
    }.items(),
)
def test_an_import_says_what_is_to_know_of_the_records_and_takes_them_in(tmp_path, here, harness, records, said):
    made = records(planned(tmp_path)[:3])
    for record in made:
        keep(tmp_path / "there", record)
    export_records(tmp_path / "there", tmp_path / "sent.zip")
    done, again = (harness("import", tmp_path / "sent.zip", "--results", here) for _ in range(2))
    for imported in (done, again):
        (warning,) = imported.err.splitlines()
        assert (imported.code, said in warning) == (0, True)
    assert f"{len(made)} new records, 0 replaced, 0 known already" in done.out
    assert f"0 new records, 0 replaced, {len(made)} known already" in again.out
    assert files(here) == files(tmp_path / "there")
    counts = [store.load(here / "runs" / "small", record.id).status for record in made]
    assert counts == ["invalid" if record is made[0] and "certificate says" in said else "ok" for record in made]


def test_a_suite_finds_its_trials_finished_after_an_import(sent, here, tmp_path, harness):
    harness("import", sent, "--results", here)
    done = harness("plan", tmp_path / "suite.yaml", "--results", here, "--json")
    assert [trial["state"] for trial in json.loads(done.out)["trials"]] == ["ok", "ok", "diverged", "missing"]


def test_an_exported_record_names_the_text_and_not_the_folder_that_it_lies_in(tmp_path, here, harness):
    (tmp_path / "texts").mkdir()
    for number, split in enumerate(("train", "valid", "test")):
        (tmp_path / "texts" / f"{split}.txt").write_text(lines(9, seed=number))
    (tmp_path / "suite.yaml").write_text(handmade.suite_text(corpora="[{text: {path: texts}}]"))
    suite = plan.load(tmp_path / "suite.yaml")
    contents = suite.contents_of(suite.trials[0])
    keep(tmp_path / "there", record_of(suite.trials[0], suite=suite.name, contents=contents))
    export_records(tmp_path / "there", tmp_path / "sent.zip")
    (content,) = (each for name, each in members(tmp_path / "sent.zip").items() if name.endswith("record.json"))
    assert str(tmp_path).encode() not in content
    assert json.loads(content)["spec"]["corpus"]["params"]["path"] == "texts"
    for place, new in ((here, 1), (tmp_path / "there", 0)):
        imported = harness("import", tmp_path / "sent.zip", "--results", place)
        assert f"{counted(new, 'new record')}, 0 replaced, {1 - new} known already" in imported.out
        done = harness("plan", tmp_path / "suite.yaml", "--results", place, "--json")
        assert json.loads(done.out)["trials"][0]["state"] == "ok"


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


@pytest.mark.parametrize(
    ("options", "said", "suites", "scored"),
    [
        (("--no-token-nll",), "4 records of 2 suites, 3 timings: ", {"small", "other"}, 0),
        (("--suite", "other"), "1 record of 1 suite, 1 timing, token scores of 1 trial: ", {"other"}, 1),
        (("--trial", "{one}"), "2 records of 2 suites, 2 timings, token scores of 2 trials: ", {"small", "other"}, 2),
    ],
)
def test_what_is_exported_can_be_chosen(there, tmp_path, harness, options, said, suites, scored):
    (one, *_) = planned(tmp_path)
    keep(there, record_of(one, suite="other"))
    options = [each.format(one=one.id) for each in options]
    done = harness("export", tmp_path / "records.zip", "--results", there, *options)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(said)
    kept = members(tmp_path / "records.zip").keys() - {"manifest.json"}
    assert {path.partition("/")[0] for path in kept} == suites
    assert sum(path.endswith(".npz") for path in kept) == scored


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--trial", "0123456789ab"), "no record of a trial '0123456789ab' among the 3 that --suite and"),
        (("--suite", "smal"), "no records of a suite 'smal'; did you mean 'small'? (known: small)"),
        (("--results", "nowhere"), "nowhere/runs holds no record that verifies"),
        ((), "records.zip exists already; name another file, or remove it"),
        ((), "export one suite at a time (--suite)"),
    ],
)
def test_a_wrong_export_is_one_sentence_and_writes_nothing(there, tmp_path, harness, monkeypatch, options, sentence):
    monkeypatch.chdir(tmp_path)
    if "exists" in sentence:
        (tmp_path / "records.zip").write_text("a year's work")
    if "at a time" in sentence:
        monkeypatch.setattr("zipfile.ZIP_FILECOUNT_LIMIT", 4)
    before = files(tmp_path)
    done = harness("export", "records.zip", *(options if "--results" in options else ("--results", there, *options)))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert sentence in done.err
    assert files(tmp_path) == before


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
    other = record_of(spec, metrics={**record_of(spec).metrics, "test_ppl": 9.0}, weights_sha256="cd" * 32)
    return keep(here, other, scored=False), other


OTHER = {"weights_sha256": "cd" * 32}
LATER = handmade.environment(device="another processor", finished="2026-02-02T03:05:05+00:00")
# What another machine has of a trial that is here with test ppl e^2 = 7.389 -> how many replicates an import adds, and
# what it says. Without two other seeds, two trainings may differ by 5 %: up to 7.389 e^0.05 = 7.768.
ANOTHER = {
    "equal bits, another day": ({"environment": LATER}, 1, ""),
    "equal bits, other times": ({"metrics": {"train_minutes": 9.0}}, 1, ""),
    "rounded": ({"metrics": {"test_ppl": 7.76}, **OTHER}, 1, ""),
    "too far": ({"metrics": {"test_ppl": 7.78}, **OTHER}, 1, "(7.39 here, 7.78 there)"),
    "equal weights, other ppl": ({"metrics": {"test_ppl": 7.40}}, 1, "(7.39 here, 7.40 there)"),
    "invalid": ({"status": "invalid"}, 1, "(7.39 here, invalid there)"),
    "diverged": ({"status": "diverged"}, 1, "(7.39 here, diverged there)"),
    "out of memory": ({"status": "oom"}, 0, ""),
}


@pytest.mark.parametrize(("changes", "replicates", "said"), ANOTHER.values(), ids=ANOTHER)
def test_another_training_of_a_trial_becomes_a_replicate(tmp_path, here, harness, changes, replicates, said):
    (spec, *_) = planned(tmp_path)
    ours = record_of(spec)
    keep(here, ours)
    theirs = record_of(spec, **{**changes, "metrics": {**ours.metrics, **changes.get("metrics", {})}})
    keep(tmp_path / "there", theirs, timed=False, scored=False)
    export_records(tmp_path / "there", tmp_path / "sent.zip")
    for new in (replicates, 0):  # the second import changes nothing
        done = harness("import", tmp_path / "sent.zip", "--results", here)
        assert (done.code, done.err.count("\n")) == (0, 1 if said else 0)
        assert said in done.err
        assert (f"{1 - new} known already" in done.out, "1 other training of" in done.out) == (True, new == 1)
        assert store.load(here / "runs" / "small", spec.id) == ours
        found = sidecars.REPLICATES.load(here / "runs" / "small", ours)
        assert found == ((theirs,) if replicates else None)
    export_records(here, tmp_path / "both.zip")  # and they go on to a third machine
    harness("import", tmp_path / "both.zip", "--results", tmp_path / "third")
    assert files(tmp_path / "third") == files(here)


def test_a_result_takes_the_place_of_a_record_without_one(tmp_path, here, sent):
    (spec, *_) = planned(tmp_path)
    keep(here, record_of(spec, status="oom", metrics={}, weights_sha256=None), timed=False, scored=False)
    assert import_records(sent, here).replaced == 1
    assert store.load(here / "runs" / "small", spec.id).status == "ok"


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


def test_other_results_of_a_trial_in_another_suite_are_told_and_none_is_replaced(sent, here, tmp_path, harness):
    one, two, three, _ = planned(tmp_path)
    keep(here, record_of(one, suite="other", metrics={"test_ppl": 1.5, "scored_test_tokens": 3.0}), scored=False)
    keep(here, record_of(two, suite="other", metrics={**record_of(two).metrics, "train_minutes": 9.0}))  # equal
    keep(here, record_of(two, suite="third", status="invalid"), timed=False, scored=False)
    keep(here, record_of(three, suite="other"))  # ok here, failed there: that is no other result
    before = files(here)
    done = harness("import", sent, "--results", here)
    assert done.code == 0
    assert sorted(done.err.splitlines()) == sorted(
        f"warning: trial {trial.id} has different results in {suites}; the leaderboard leaves it out"
        for trial, suites in (
            (one, "the suites small (7.39) and other (1.50)"),
            (two, "the suites small (7.39) and third (invalid)"),
        )
    )
    assert before.items() <= files(here).items()


def test_a_trial_that_is_being_run_here_is_not_waited_for(sent, here, tmp_path, harness):
    (spec, *_) = planned(tmp_path)
    with store.writing(store.runs_folder(here, "small"), spec.id):
        done = harness("import", sent, "--results", here)
    assert (done.code, done.err.count("\n"), f"{spec.id}.lock" in done.err) == (2, 1, True)
    assert harness("import", sent, "--results", here).code == 0


def test_a_place_that_cannot_be_written_is_one_sentence(sent, tmp_path, harness):
    (tmp_path / "file").write_text("")
    done = harness("import", sent, "--results", tmp_path / "file")
    assert done.code == 2
    assert done.err.count("\n") == 1
