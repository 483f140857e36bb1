"""`harness runs --prune`: what no suite needs any more is exported and removed, and nothing is lost at any moment."""

import os
import re
import signal
import subprocess
import sys

import handmade
import pytest
from bundles import diagnose, diagnosis_of, files, keep, planned, record_of
from commands import PATIENCE

from harness import plan
from harness.cli import history_tables
from harness.exchange import bundle
from harness.exchange.importer import import_records
from harness.exchange.unneeded import Unneeded
from harness.records import diagnoses, store

pytestmark = pytest.mark.system

WITHOUT_MOS = handmade.SMALL.replace("  - mos: {num_mixtures: 2}\n", "")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a suite of four finished trials, two of softmax and two of mos; its file names softmax only."""
    folder = tmp_path / "place"
    trials = planned(folder / "suites", handmade.SMALL)
    for trial in trials:
        keep(folder / "results", record_of(trial))
        (folder / "results" / "runs" / "small" / trial.id / "best.pt").write_bytes(b"w" * 1000)
        (folder / "results" / "runs" / "small" / trial.id / "trial.log").write_text("a log")
    (folder / "suites" / "suite.yaml").write_text(WITHOUT_MOS)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def old(place):
    """The ids of the trials that the suite does not plan any more."""
    return ids(place, "mos")


def ids(place, head):
    runs = place / "results" / "runs" / "small"
    return sorted(each.name for each in runs.glob("[0-9a-f]*") if store.load(runs, each.name).spec.head.name == head)


def folders(place):
    return sorted(each.name for each in (place / "results" / "runs" / "small").iterdir() if each.name != ".locks")


def archived(place):
    """The ids of the trials in all archives, each of which is opened and read whole."""
    found = []
    for file in sorted((place / "results" / "pruned").glob("*.zip")):
        with bundle.opened(file) as archive:
            for trial in archive.manifest.trials:
                assert all(archive.content(trial, name) for name in trial.files)
                found.append(trial.id)
    return sorted(found)


@pytest.mark.parametrize("aside", ["record.previous.json", "record.bad"])
def test_a_trial_with_a_record_that_an_export_leaves_out_is_kept(place, old, harness, aside):
    (place / "results" / "runs" / "small" / old[0] / aside).write_text("{}")
    done = harness("runs", "--prune", "--yes")
    assert f"trial {old[0]} of small is kept: it has {aside}, which an export leaves out" in done.err
    assert "removed: 1 trial, " in done.out
    assert folders(place) == sorted([*ids(place, "softmax"), old[0]])


@pytest.mark.parametrize("only", [(), ("small",), ("suites/small.yaml",)], ids=["all", "by name", "by file"])
def test_a_suite_without_the_key_name_is_known_by_its_file(place, old, harness, only):
    text = WITHOUT_MOS.replace("name: small\n", "")
    assert text != WITHOUT_MOS
    (place / "suites" / "suite.yaml").rename(place / "suites" / "small.yaml").write_text(text)
    done = harness("runs", *only, "--prune", "--yes")
    assert (done.code, done.err) == (0, "")
    assert folders(place) == ids(place, "softmax")
    assert archived(place) == old


def test_records_that_no_suite_plans_are_exported_and_then_removed(place, old, harness, tmp_path):
    before = files(place / "results")
    done = harness("runs", "--prune", "--yes")
    assert (done.code, done.err) == (0, "")
    assert folders(place) == ids(place, "softmax")
    assert archived(place) == old
    assert "removed: 2 trials, " in done.out
    (archive,) = (place / "results" / "pruned").glob("*.zip")
    assert f"exported: results/pruned/{archive.name}" in done.out
    assert f"harness import results/pruned/{archive.name}\n" in done.out
    assert re.fullmatch(r"small-\d{8}-\d{6}-\d{6}-1\.zip", archive.name)
    import_records(archive, tmp_path / "there")
    of_old = {path: content for path, content in before.items() if path.split("/")[2] in old}
    kept = {path: content for path, content in of_old.items() if path.split("/")[3] in bundle.FILES}
    assert files(tmp_path / "there") == kept
    assert harness("runs", "--prune", "--yes").out == "nothing to prune\n"


def test_results_of_diagnostics_are_exported_and_removed_with_their_trial(place, old, harness, tmp_path):
    record = store.load(place / "results" / "runs" / "small", old[0])
    diagnose(place / "results", record)
    assert harness("runs", "--prune", "--yes").code == 0
    assert folders(place) == ids(place, "softmax")
    (archive,) = (place / "results" / "pruned").glob("*.zip")
    import_records(archive, tmp_path / "there")
    (kept,) = diagnoses.load(tmp_path / "there" / "runs" / "small", record)
    assert kept == diagnosis_of()


def test_it_shows_sizes_and_asks_and_an_empty_answer_removes_nothing(place, old, harness, monkeypatch):
    before = files(place / "results")
    for answer in ("n\n", "\n", ""):
        asked = subprocess.run(
            [sys.executable, "-m", "harness.cli", "runs", "--prune"], cwd=place, input=answer, text=True,
            capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert asked.returncode != 0
        assert "Remove all this? [y/N]" in asked.stdout
        size = sum(path.stat().st_size for each in old for path in (place / "results/runs/small" / each).iterdir())
        assert f"2, {size / 1000:.1f} kB" in asked.stdout
    assert files(place / "results") == before


def test_it_names_the_trials_and_says_what_becomes_of_tables(place, old, harness):
    runs = place / "results" / "runs" / "small"
    seeds = {trial: store.load(runs, trial).spec.seed for trial in old}
    done = harness("runs", "--prune", "--yes")
    assert "not planned by suites/suite.yaml:" in done.out
    for trial in old:
        assert f"  {trial}  mos(num_mixtures=2), seed {seeds[trial]}\n" in done.out
    assert "with fewer finished trials need --overwrite" in done.out


def test_of_many_trials_it_names_five_and_counts_the_others():
    ids = [f"{number:012x}" for number in range(8)]
    found = Unneeded(suite="small", file=None, unplanned=dict.fromkeys(ids, 1), heads=dict.fromkeys(ids, "softmax"))
    shown = [str(part) for part in history_tables.unneeded([found])]
    assert shown[-6:] == [*(f"  {each}  softmax" for each in ids[:5]), "  and 3 more"]


def test_a_yes_to_the_question_removes(place, old):
    asked = subprocess.run(
        [sys.executable, "-m", "harness.cli", "runs", "--prune"], cwd=place, input="y\n", text=True,
        capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    assert archived(place) == old


@pytest.mark.parametrize("given", ["file", "folder"])
def test_a_suite_file_that_is_given_counts(place, old, harness, tmp_path, given):
    planned(tmp_path / "more", handmade.SMALL)
    option = tmp_path / "more" / ("suite.yaml" if given == "file" else "")
    assert harness("runs", "--prune", "--yes", "--suite", option).out == "nothing to prune\n"
    assert len(folders(place)) == 4
    done = harness("runs", "--prune", "--suite", tmp_path / "nowhere")
    assert done.code == 2
    assert "there is no such file or folder" in done.err


def test_records_of_a_suite_without_a_file_are_kept_until_it_is_named(place, harness):
    (place / "suites" / "suite.yaml").unlink()
    done = harness("runs", "--prune", "--yes")
    assert (done.code, done.out) == (0, "nothing to prune\n")
    assert done.err == (
        "warning: the records of 'small' are kept: no suite file has that name; name it (`harness runs small --prune`) "
        "to remove them, or name its file with --suite\n"
    )
    everything = folders(place)
    done = harness("runs", "small", "--prune", "--yes")
    assert done.code == 0
    assert archived(place) == everything
    assert folders(place) == []


def test_records_of_a_suite_with_a_mistake_are_kept_also_when_it_is_named(place, harness):
    (place / "suites" / "suite.yaml").write_text(WITHOUT_MOS.replace("epochs: 2", "epochs: two"))
    for named in ((), ("small",)):
        done = harness("runs", *named, "--prune", "--yes")
        assert (done.code, done.out) == (0, "nothing to prune\n")
        assert "all records of the suite suites/suite.yaml are kept, because it cannot be read: " in done.err
    (place / "suites" / "other.yaml").write_text("name: [")
    done = harness("runs", "--prune", "--yes")
    assert (done.code, done.out) == (2, "")
    assert len(folders(place)) == 4


def test_a_trial_whose_lock_is_held_is_left(place, old, harness):
    runs = place / "results" / "runs" / "small"
    with store.writing(runs, old[0]):
        done = harness("runs", "--prune", "--yes")
    assert done.code == 0
    assert done.err == f"warning: trial {old[0]} of small is kept: another process is working on it\n"
    assert folders(place) == sorted([*ids(place, "softmax"), old[0]])
    assert store.load(runs, old[0]) is not None


def test_a_record_that_does_not_verify_is_left(place, old, harness):
    record = place / "results" / "runs" / "small" / old[0] / "record.json"
    record.write_text(record.read_text().replace('"status": "ok"', '"status": "oom"'))
    done = harness("runs", "--prune", "--yes")
    assert "the checksum does not fit the content; the record does not count; it is kept" in done.err
    assert archived(place) == [old[1]]
    assert record.exists()


def test_a_trial_with_a_damaged_file_beside_its_record_is_left(place, old, harness):
    scores = place / "results" / "runs" / "small" / old[0] / "test_nll.npz"
    scores.write_bytes(b"damaged")
    done = harness("runs", "--prune", "--yes")
    assert f"trial {old[0]} of small is kept: its files have changed, or one of them does not verify" in done.err
    assert scores.read_bytes() == b"damaged"
    assert folders(place) == sorted([*ids(place, "softmax"), old[0]])


def checkpoints(place, trial):
    """Two checkpoints, the weights that they name, and a file that a killed process was writing."""
    folder = place / "results" / "runs" / "small" / trial
    for name in ("checkpoint-000001-00000000-000001.pt", "best-000001.pt", ".best.pt.123.tmp"):
        (folder / name).write_bytes(b"0" * 5000)
    return folder


def test_checkpoints_of_finished_trials_and_temporary_files_are_removed(place, old, harness):
    one, two = ids(place, "softmax")
    folder = checkpoints(place, one)
    scratch = place / "results" / "runs" / "small" / f".harness-tune-{os.uname().nodename}-999999999-x"
    scratch.mkdir()
    (scratch / "state").write_text("0")
    (place / "suites" / "suite.yaml").write_text(handmade.SMALL)  # which plans all trials
    done = harness("runs", "--prune", "--yes")
    assert done.code == 0, done.err
    assert "removed: 0 trials, 15.0 kB in all" in done.out
    assert {each.name for each in folder.iterdir()} == {each.name for each in (folder.parent / two).iterdir()}
    assert not scratch.exists()
    assert not (place / "results" / "pruned").exists()


def test_what_a_running_or_unfinished_trial_has_is_left(place, harness):
    one, two = ids(place, "softmax")
    running, unfinished = checkpoints(place, one), checkpoints(place, two)
    (unfinished / "record.json").unlink()
    (place / "suites" / "suite.yaml").write_text(handmade.SMALL)
    before = files(running), files(unfinished)
    with store.writing(running.parent, one), store.writing(unfinished.parent, two):
        for folder in (running, unfinished):
            (folder / ".best.pt.123.tmp").write_bytes(b"0" * 5000)  # what taking the lock removes
        before = files(running), files(unfinished)
        assert harness("runs", "--prune", "--yes").code == 0
    assert (files(running), files(unfinished)) == before
    assert harness("runs", "--prune", "--yes").code == 0
    assert sorted(each.name for each in unfinished.glob("*.pt")) == [
        "best-000001.pt",
        "best.pt",
        "checkpoint-000001-00000000-000001.pt",
    ]


@pytest.mark.parametrize("status", ["timeout", "oom"])
def test_checkpoints_from_which_a_failed_trial_may_go_on_are_left(place, harness, status):
    one, _ = ids(place, "softmax")
    runs = place / "results" / "runs" / "small"
    store.save(record_of(store.load(runs, one).spec, status=status, metrics={}, weights_sha256=None), runs)
    folder = checkpoints(place, one)
    harness("runs", "small", "--prune", "--yes")
    assert (folder / "checkpoint-000001-00000000-000001.pt").exists()
    assert not (folder / ".best.pt.123.tmp").exists()


KILLED = """
import os, signal, sys
from harness.exchange import pruning

where, remove = sys.argv.pop(1), pruning._remove_trial

def killing(*arguments):
    if where == "after":
        remove(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

pruning._remove_trial = killing
from harness.cli import main
main()
"""


def killed(place, where):
    script = [sys.executable, "-c", KILLED, where, "runs", "--prune", "--yes"]
    done = subprocess.run(script, cwd=place, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_killed_between_export_and_removal_all_is_there_twice(place, old, harness):
    before = files(place / "results")
    killed(place, "before")
    assert archived(place) == old
    after = files(place / "results")
    assert {path: content for path, content in after.items() if not path.startswith("pruned/")} == before
    assert harness("runs", "--prune", "--yes").code == 0
    assert folders(place) == ids(place, "softmax")
    assert sorted(set(archived(place))) == old


def test_killed_after_the_first_removal_each_record_is_here_or_in_the_archive(place, old, harness):
    killed(place, "after")
    assert archived(place) == old
    (left,) = ids(place, "mos")
    assert harness("runs", "--prune", "--yes").code == 0
    assert archived(place) == sorted([*old, left])
    assert folders(place) == ids(place, "softmax")


def test_killed_while_a_folder_is_removed_the_rest_of_it_goes_next_time(place, old, harness):
    runs = place / "results" / "runs" / "small"
    (runs / old[0]).rename(runs / f".pruned-{old[0]}-1")  # as the process leaves it that is killed in rmtree
    assert f"{old[0]}" not in harness("runs", "small").out
    for command in ("leaderboard", "doctor"):
        done = harness(command)
        assert old[0] not in done.out + done.err
    assert harness("runs", "--prune", "--yes").code == 0
    assert archived(place) == [old[1]]
    assert folders(place) == ids(place, "softmax")


def test_without_room_for_the_archive_nothing_is_removed(place, harness):
    (place / "results" / "pruned").write_text("a file in the place of the folder")
    before = files(place / "results")
    done = harness("runs", "--prune", "--yes")
    assert done.code == 2
    assert "cannot be written" in done.err
    assert files(place / "results") == before


def test_many_trials_are_exported_in_portions(place, old, harness, monkeypatch):
    monkeypatch.setattr("harness.exchange.pruning.MAX_BYTES", 1)
    assert harness("runs", "--prune", "--yes").code == 0
    assert len(list((place / "results" / "pruned").glob("*.zip"))) == 2
    assert archived(place) == old


TUNE = "tune: {space: {train.lr: {log_uniform: [0.001, 0.1]}}, trials: 2, epochs: 1, seed: 3}\n"


def test_a_tuned_suite_plans_its_tuning_trials_and_the_trials_at_each_point(place, harness):
    (place / "suites" / "suite.yaml").write_text(handmade.SMALL + TUNE)
    tuning = plan.load(place / "suites" / "suite.yaml").tuning
    every = [trial for row in tuning.rows for each in row.candidates for trial in (each.trial, *each.finals)]
    assert len(every) == 2 * 2 * 3  # rows, points, the tuning trial and two seeds
    for trial in every:
        keep(place / "results", record_of(trial))
    before = folders(place)
    assert harness("runs", "--prune", "--yes").code == 0
    assert folders(place) == sorted(trial.id for trial in every)
    assert archived(place) == sorted(set(before) - {trial.id for trial in every})


def test_the_options_of_prune_need_it(place, harness):
    assert harness("runs", "--yes").code == 2
    assert harness("runs", "--suite", "suites").code == 2
    assert harness("runs", "--prune", "--json").code == 2
