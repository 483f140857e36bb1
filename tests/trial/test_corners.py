"""Corners in which a trial could be faked, doubled, lost or blamed: each was one once."""

import signal
import threading
from functools import partial

import handmade
import pytest
import torch
from disturbed import suite_text

from harness import plan
from harness.errors import CorpusError, ExecutionError
from harness.execution import inline
from harness.execution.executors import Execution, Resources
from harness.execution.watcher import Watcher, run_all
from harness.heads.softmax import Softmax
from harness.plan.suite_file import TimeoutSpec
from harness.records import store
from harness.registry import HEADS
from harness.training.checkpoint import Checkpoints
from harness.training.step import EagerStep
from harness.trial import run as trial_run
from harness.trial import stages
from harness.trial.run import run, status_of

ONE = Resources(cpus=1, gpus=0.0)


def trials(tmp_path, *heads, **more):
    path = tmp_path / "tiny.yaml"
    path.write_text(suite_text(*heads, **more))
    return plan.load(path).trials


@pytest.fixture
def setting(tmp_path):
    return partial(handmade.task, runs=tmp_path / "runs")


class Killed(BaseException):
    raised_outside_of_components = True  # as harness/containment.py marks what a signal raises


@pytest.mark.guards("corpus-as-planned")
def test_a_text_edited_after_planning_makes_no_record_under_the_old_id(tmp_path, setting):
    text = tmp_path / "novel.txt"
    text.write_text("a b c d e f g h\n" * 60)
    suite = suite_text("softmax").replace(
        "markov: {vocab_size: 12, num_tokens: 400, branching: 3}", "text: {path: novel.txt}"
    )
    path = tmp_path / "tiny.yaml"
    path.write_text(suite)
    planned = plan.load(path)
    (spec,) = planned.trials
    text.write_text("h g f e d c b a\n" * 60)
    (edited,) = plan.load(path).trials
    assert edited.id != spec.id
    with pytest.raises(CorpusError, match="has changed since the trials were planned"):
        run(setting(spec=spec, contents=planned.contents))
    assert store.load(setting.keywords["runs"], spec.id) is None
    text.write_text("a b c d e f g h\n" * 60)
    assert run(setting(spec=spec, contents=planned.contents)).status == "ok"


@pytest.mark.guards("record-of-another-driver")
def test_a_record_that_another_driver_saves_while_this_one_starts_is_taken(tmp_path, setting, monkeypatch):
    (spec,) = trials(tmp_path, "softmax")
    todo = [spec]  # as the CLI sees it
    other = []

    def fetch(specs, data):  # Ray starts, corpora come in; meanwhile another driver finishes the trial
        other.append(run(setting(spec=spec)))

    monkeypatch.setattr(inline, "fetch_sources", fetch)
    ends = []
    inline.execute(Execution(tasks=[setting(spec=each) for each in todo], resources=ONE), ends.append)
    assert store.digest(ends[-1].record) == store.digest(other[0])


@pytest.mark.guards("ray-gone-no-fault")
def test_a_ray_that_is_gone_makes_no_oom_records_of_healthy_trials(tmp_path, setting):
    specs = list(trials(tmp_path, "softmax", seeds="[1, 2]"))
    watcher = Watcher([setting(spec=spec) for spec in specs], lambda event: None)

    def fit(some, at_once):
        if at_once is None:
            for task in some:
                watcher.started(task.id)
        raise ConnectionError("the head node is gone")

    with pytest.raises(ExecutionError, match="the head node is gone"):
        run_all(watcher, fit, runner="Ray")
    assert store.digests(setting.keywords["runs"], [spec.id for spec in specs]) == {}


@pytest.mark.guards("give-up-without-waiting")
def test_a_driver_gives_up_a_trial_without_waiting_for_whoever_holds_it(tmp_path, setting, monkeypatch):
    monkeypatch.setattr(trial_run, "LOCK_SECONDS", 0.5)
    (spec,) = trials(tmp_path, "softmax")
    watcher = Watcher([setting(spec=spec)], lambda event: None)
    watcher.started(spec.id)
    with store.writing(setting.keywords["runs"], spec.id):
        driver = threading.Thread(target=watcher.died, args=(spec.id, "gone"), daemon=True)
        driver.start()
        driver.join(15)
        waiting = driver.is_alive()
    assert not waiting


def test_a_listener_that_raises_fails_no_trial_inline(tmp_path, setting):
    (spec,) = trials(tmp_path, "softmax")

    def listener(event):
        if event.kind == "progress":
            raise OSError(28, "No space left on device")  # stdout is a file on a full disk, or the terminal is gone

    inline.execute(Execution(tasks=[setting(spec=spec)], resources=ONE), listener)
    assert store.load(setting.keywords["runs"], spec.id).status == "ok"


@pytest.mark.guards("message-readable")
@pytest.mark.parametrize("message", ["caf\udce9.txt", "x" * 17_000_000], ids=["surrogate", "huge"])
def test_whatever_a_head_says_its_record_is_made_and_can_be_read(message, tmp_path, setting, monkeypatch):
    class Talking(Softmax):
        def forward(self, hidden):
            raise ValueError(message)

    (spec,) = trials(tmp_path, "softmax")
    monkeypatch.setitem(HEADS._classes, "softmax", Talking)
    inline.execute(Execution(tasks=[setting(spec=spec)], resources=ONE), lambda event: None)
    assert store.load(setting.keywords["runs"], spec.id).status == "error"


def test_checkpoints_of_another_version_are_refused_with_a_sentence_and_removed(tmp_path, setting, monkeypatch):
    """As after a new version of the harness, whose checkpoints have another schema."""
    (spec,) = trials(tmp_path, "softmax")
    with monkeypatch.context() as patch:
        patch.setattr(stages, "weights_sha256", lambda weights: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            run(setting(spec=spec))
    monkeypatch.setattr("harness.training.checkpoint.SCHEMA", 1000)
    ends = []

    def report(progress):
        ends.append(progress)
        if progress.epoch == 2 and progress.step == progress.steps:
            raise Killed

    with pytest.raises(Killed):
        run(setting(spec=spec), report)
    folder = store.folder(setting.keywords["runs"], spec.id)
    assert Checkpoints(folder).newest(spec.id).position.epoch == 2
    log = (folder / "trial.log").read_text()
    assert "made by another version of the harness or for another trial; the trial starts again" in log


def test_weights_of_a_best_epoch_are_there_though_damaged_checkpoints_lie_beside(tmp_path, setting, monkeypatch):
    """Both kept checkpoints are of an older harness; the best epoch is the first one."""
    (spec,) = trials(tmp_path, "softmax", train="train: {optimizer: sgd, lr: 20, epochs: 4, batch_size: 4, seq_len: 7}")
    whole = run(setting(spec=spec))
    folder = store.folder(setting.keywords["runs"], spec.id)
    assert whole.metrics["best_epoch"] < 4, "choose another rate"
    (folder / "record.json").unlink()
    for epoch in (8, 9):  # of a foreign schema, named further on
        torch.save({}, folder / f"checkpoint-{epoch:06}-00000000-000007.pt")
    again = run(setting(spec=spec))
    assert (again.status, again.message) == ("ok", "")


def test_a_full_gpu_is_oom_however_cuda_says_it():
    for said in (
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ):
        assert status_of(RuntimeError(said)) == "oom"


@pytest.mark.guards("driver-waits-no-silence")
def test_waiting_for_the_driver_is_no_silence_of_the_trial(tmp_path, setting, monkeypatch):
    """tune.report returns when the driver has taken the report, which may wait a minute for MLflow's lock."""
    (spec,) = trials(tmp_path, "softmax")
    alarms, step = {"waiting": set(), "training": set()}, EagerStep.advance

    def seconds_left() -> float:
        return signal.getitimer(signal.ITIMER_REAL)[0]

    def advance(self, *arguments):
        alarms["training"].add(seconds_left() > 0)
        return step(self, *arguments)

    monkeypatch.setattr(EagerStep, "advance", advance)
    setting = partial(setting, timeout=TimeoutSpec(silent_minutes=60))
    record = run(setting(spec=spec), lambda progress: alarms["waiting"].add(seconds_left() > 0))
    assert record.status == "ok", record.message
    assert alarms == {"waiting": {False}, "training": {True}}  # is an alarm set


@pytest.mark.guards("ok-record-outlives-failed")
def test_a_record_that_was_ok_outlives_two_failed_ones(tmp_path, setting, monkeypatch):
    """--force on a finished trial, out of memory beside others, and again alone."""
    (spec,) = trials(tmp_path, "softmax")
    good = run(setting(spec=spec))
    monkeypatch.setattr(stages, "built_model", lambda *a, **k: (_ for _ in ()).throw(MemoryError()))
    for _ in range(2):
        known = store.load(setting.keywords["runs"], spec.id)
        run(setting(spec=spec, fresh=True, replaces=store.digest(known)))
    kept = [path.read_text() for path in store.folder(setting.keywords["runs"], spec.id).glob("record*")]
    assert any(good.weights_sha256 in text for text in kept)
