"""`harness run`: what is run and what is not, exit codes, what is printed and written."""

import json
import re
import signal
import sys

import pytest
from commands import PATIENCE, SUITE, files, record_files, started, table_rows


def test_a_second_run_starts_nothing(finished, harness, monkeypatch):
    for module in ("ray", "harness.execution.ray.tuner", "mlflow"):
        monkeypatch.setitem(sys.modules, module, None)  # an import of it would raise
    before = files(finished)
    done = harness("run", "suites/tiny.yaml")
    assert (done.code, done.err) == (0, "")
    assert "nothing to run: all 4 trials have a record" in done.out
    assert files(finished) == before


@pytest.mark.needs("integrity")
def test_an_interrupted_run_says_what_is_saved_and_writes_the_table_of_it(finished, run, monkeypatch):
    folder = finished / "results" / "tables"

    def interrupt(execution, *rest):
        for task in execution.tasks[1:]:  # set aside, as trials that begin anew do
            (task.folder / "record.json").unlink(missing_ok=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.execution.run_suite.run_trials", interrupt)
    done = run("--force")
    assert (done.code, done.out) == (130, "")
    assert done.err == (
        "interrupted: 1 of 4 trials finished, table: results/tables/tiny.md; start the same command again to go on\n"
    )
    rows = {"softmax": "1/2: 1 not run", "MoS 2": "0/2: 2 not run"}
    assert table_rows((folder / "tiny.md").read_text()) == rows
    done = run("--set", "train.epochs=1")
    assert (done.code, done.out) == (130, "")
    assert done.err == "interrupted: 0 of 4 trials finished; start the same command again to go on\n"
    assert not (folder / "tiny.epochs=1.md").exists()


def test_a_failed_trial_is_a_row_and_exit_code_1_until_retried(fresh, run):
    options = ("--set", "train.lr=1e30", "--only", "head=softmax,seed=1")
    done = run(*options)
    assert done.code == 1
    markdown = (fresh / "results" / "tables" / "tiny.lr=1e30.md").read_text()
    assert table_rows(markdown) == {"softmax": "0/2: 1 diverged, 1 not run", "MoS 2": "0/2: 2 not run"}
    assert re.search(r"- softmax lstm markov seed=1 \([0-9a-f]{12}\): diverged: Diverged: ", markdown)
    first = record_files(fresh)
    again = run(*options)
    assert again.code == 1
    assert "nothing to run" in again.out
    assert "diverged: 1 of these trials; such trials need other settings" in again.out
    assert record_files(fresh) == first
    assert run(*options, "--retry-failed").code == 1
    (trial,) = first
    assert record_files(fresh)[trial][0] > first[trial][0]
    previous = fresh / "results" / "runs" / "tiny" / trial / "record.previous.json"
    assert previous.read_bytes() == first[trial][1]


@pytest.mark.needs("integrity")
def test_only_runs_the_chosen_trials_and_the_table_shows_all_rows(fresh, run):
    done = run("--only", "head=softmax,seed=1", "--only", "head=mos,seed=2")
    assert done.code == 0
    assert len(record_files(fresh)) == 2
    expected = {"softmax": "1/2: 1 not run", "MoS 2": "1/2: 1 not run"}
    assert table_rows((fresh / "results" / "tables" / "tiny.md").read_text()) == expected


def test_a_shortened_run_has_ids_and_a_table_of_its_own(finished, run):
    before, full = record_files(finished), (finished / "results" / "tables" / "tiny.md").read_text()
    done = run("--set", "train.epochs=1", "--only", "seed=1")
    assert done.code == 0
    assert "SHORTENED: train.epochs = 1 instead of 2" in done.out
    after = record_files(finished)
    assert before.items() <= after.items()
    assert len(after) == 4 + 2
    assert (finished / "results" / "tables" / "tiny.md").read_text() == full
    assert (finished / "results" / "tables" / "tiny.epochs=1.md").read_text() in done.out


def test_a_damaged_record_is_named_and_its_trial_runs_again(finished, run):
    before = record_files(finished)
    trial = sorted(before)[0]
    place = finished / "results" / "runs" / "tiny" / trial / "record.json"
    place.write_bytes(before[trial][1][:100])
    done = run()
    assert done.code == 0
    assert str(place) in done.err
    after = record_files(finished)
    assert {name for name in after if after[name] != before[name]} == {trial}
    assert json.loads(after[trial][1])["weights_sha256"] == json.loads(before[trial][1])["weights_sha256"]


def test_every_mistake_of_a_suite_is_located_and_nothing_is_run(fresh, harness):
    text = SUITE.replace("softmax, {mos", "sofmax, {mos").replace("epochs: 2", "epochs: -2")
    (fresh / "suites" / "tiny.yaml").write_text(text)
    before = files(fresh)
    done = harness("run", "suites/tiny.yaml")
    assert (done.code, done.out) == (2, "")
    head, train, count = done.err.splitlines()
    assert head.startswith("suites/tiny.yaml:5:9: heads.0: unknown head 'sofmax'; did you mean 'softmax'?")
    # line 6: "train: {optimizer: adam, lr: 0.01, epochs: -2": the value begins in column 44
    assert train.startswith("suites/tiny.yaml:6:44: train.epochs: ")
    assert count == "2 problems; nothing was run"
    assert files(fresh) == before


@pytest.mark.system
def test_ctrl_c_ends_a_run_inline_with_130_and_no_record(fresh):
    options = ["--executor", "inline", "--no-tracking", "--set", "train.epochs=50000"]
    process = started(fresh, "run", "suites/tiny.yaml", *options)
    try:
        for line in process.stdout:
            if line.startswith("epoch "):
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert record_files(fresh) == {}
