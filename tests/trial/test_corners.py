"""Corners in which a trial could be faked, doubled, lost or blamed: each was one once."""

import signal
import threading
from dataclasses import replace

import handmade
import pytest
import torch
from disturbed import suite_text
from handmade import interrupted_before
from texts import lines
from trained import before_steps, killed_before_record, loaded, ran

from harness.errors import CorpusError
from harness.execution import executors, inline
from harness.execution.executors import Execution, Resources
from harness.execution.watcher import Watcher
from harness.plan.suite_file import TimeoutSpec
from harness.records import store
from harness.records.record import TrialRecord
from harness.training.checkpoint import Checkpoints
from harness.trial import run as trial_run
from harness.trial import stages
from harness.trial.run import run


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def task(tmp_path, runs):
    """A trial of a softmax."""
    return handmade.task(loaded(tmp_path, suite_text("softmax")).trials[0], runs)


def execute(task, listener=lambda event: None) -> TrialRecord:
    inline.execute(Execution(tasks=[task], resources=Resources(cpus=1, gpus=0.0)), listener)
    return store.load(task.runs, task.id)


def test_a_text_edited_after_planning_makes_no_record_under_the_old_id(tmp_path, runs):
    markov, text = "markov: {vocab_size: 12, num_tokens: 400, branching: 3}", tmp_path / "novel.txt"
    suite = suite_text("softmax").replace(markov, f"text: {{path: {text}}}")
    text.write_text(lines(60, seed=1))
    planned = loaded(tmp_path, suite)
    (spec,) = planned.trials
    text.write_text(lines(60, seed=2))
    with pytest.raises(CorpusError, match="has changed since the trials were planned"):
        ran(spec, runs, contents=planned.contents_of(spec))
    assert store.load(runs, spec.id) is None
    text.write_text(lines(60, seed=1))
    assert ran(spec, runs, contents=planned.contents_of(spec)).status == "ok"


def test_a_record_that_another_driver_saves_while_this_one_starts_is_taken(task, monkeypatch):
    other, ends = [], []
    # Ray starts, corpora come in; meanwhile another driver finishes the trial
    monkeypatch.setattr(executors, "fetch_sources", lambda specs, data: other.append(run(task)))
    execute(task, ends.append)
    assert store.digest(ends[-1].record) == store.digest(other[0])


def test_a_driver_gives_up_a_trial_without_waiting_for_whoever_holds_it(task, runs, monkeypatch):
    monkeypatch.setattr(trial_run, "LOCK_SECONDS", 0.5)
    watcher = Watcher([task], lambda event: None)
    watcher.started(task.id)
    with store.writing(runs, task.id):
        driver = threading.Thread(target=watcher.died, args=(task.id, "gone"), daemon=True)
        driver.start()
        driver.join(15)
        assert not driver.is_alive()


def test_a_listener_that_raises_fails_no_trial_inline(task):
    def listener(event):
        if event.kind == "progress":
            raise OSError(28, "No space left on device")  # stdout is a file on a full disk, or the terminal is gone

    assert execute(task, listener).status == "ok"


def test_checkpoints_of_another_version_are_refused_with_a_sentence_and_removed(task, monkeypatch):
    """As after a new version of the harness, whose checkpoints have another schema."""
    with killed_before_record():
        run(task)
    monkeypatch.setattr("harness.training.checkpoint.SCHEMA", 1000)
    with interrupted_before(35):  # in the third epoch of 15 steps each
        run(task)
    assert Checkpoints(task.folder).newest(task.id).position.epoch == 3
    log = (task.folder / "trial.log").read_text()
    assert "made by another version of the harness or for another trial; the trial starts again" in log


def test_weights_of_a_best_epoch_are_there_though_damaged_checkpoints_lie_beside(tmp_path, runs):
    """Both kept checkpoints are of an older harness; the best epoch is the first one."""
    train = "train: {optimizer: sgd, lr: 20, epochs: 4, batch_size: 4, seq_len: 7}"
    (spec,) = loaded(tmp_path, suite_text("softmax", train=train)).trials
    assert ran(spec, runs).metrics["best_epoch"] < 4, "choose another rate"
    folder = store.folder(runs, spec.id)
    (folder / "record.json").unlink()
    for epoch in (8, 9):  # of a foreign schema, named further on
        torch.save({}, folder / f"checkpoint-{epoch:06}-00000000-000007.pt")
    again = ran(spec, runs)
    assert (again.status, again.message) == ("ok", "")


def test_waiting_for_the_driver_is_no_silence_of_the_trial(task):
    """tune.report returns when the driver has taken the report, which may wait a minute for MLflow's lock."""
    alarms = {"waiting": set(), "training": set()}

    def look(kind):
        alarms[kind].add(signal.getitimer(signal.ITIMER_REAL)[0] > 0)  # is an alarm set

    with before_steps(lambda number: look("training")):
        record = run(replace(task, timeout=TimeoutSpec(silent_minutes=60)), lambda progress: look("waiting"))
    assert record.status == "ok", record.message
    assert alarms == {"waiting": {False}, "training": {True}}


def test_a_record_that_was_ok_outlives_two_failed_ones(task, monkeypatch):
    """--force on a finished trial, out of memory beside others, and again alone."""
    good = run(task)
    monkeypatch.setattr(stages, "built_model", lambda *a, **k: (_ for _ in ()).throw(MemoryError()))
    for _ in range(2):
        run(replace(task, fresh=True, replaces=store.digest(store.load(task.runs, task.id))))
    assert any(good.weights_sha256 in path.read_text() for path in task.folder.glob("record*"))
