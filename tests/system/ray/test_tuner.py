"""Ray Tune as the scheduler: one run of four trials serves all tests but one."""

import signal
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from harness.code import fingerprints
from harness.errors import ExecutionError
from harness.execution import inline
from harness.execution.executors import Execution, Resources
from harness.execution.ray import session, tuner
from harness.plan.specs import ComponentSpec
from harness.records import store

ONE = Resources(cpus=1, gpus=0.0)
PLUGIN = """\
import os, signal
from torch import nn

class Killer(nn.Module):
    def __init__(self, dims, embedding):
        with open(os.environ["HARNESS_TEST_KILLS"], "a") as file:
            file.write("killed\\n")
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killer(place, plugin):
    """A head that kills its worker, as a plug-in that only the workers find; the file that counts its victims."""
    plugin("killer", "Killer", PLUGIN)
    kills = place / "kills"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_TEST_KILLS", str(kills))
        yield kills


@pytest.fixture(scope="module")
def ran(suite, tasks, place, killer):
    """Under Ray, started once: two good trials, one whose worker dies, one that diverges, and a listener that raises at
    every start; then the good ones inline. Ray stays for the tests.
    """
    first, second = suite.trials[0], suite.trials[5]
    killed = first.model_copy(update={"id": "d" * 12, "head": ComponentSpec(name="killer")})
    bad = first.model_copy(update={"id": "e" * 12, "train": first.train.model_copy(update={"lr": 1e30})})
    events = []

    def listen(event):
        events.append(event)
        if event.kind == "started":
            raise RuntimeError("a listener's fault")

    handler, good, runs, reference = signal.getsignal(signal.SIGTERM), [first, second], place / "ray", place / "inline"
    with session.ray_session("local") as failures, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuner, "ray_session", lambda address: nullcontext(failures))
        assert signal.getsignal(signal.SIGTERM) == handler
        tuner.execute(Execution(tasks=tasks([first, killed, bad, second], "ray", "ray"), resources=ONE), listen)
        inline.execute(Execution(tasks=tasks(good, "inline", "inline"), resources=ONE), lambda event: None)
        yield SimpleNamespace(events=events, good=good, killed=killed, bad=bad, runs=runs, reference=reference)


@pytest.mark.guards("sigterm-from-ray-restored", "ray-on-this-machine")
def test_good_trials_leave_ok_records(ran):
    for trial in ran.good:
        record = store.load(ran.runs, trial.id)
        assert (record.status, record.spec, record.environment.executor) == ("ok", trial, "ray")
        assert record.environment.threads == 1


def test_a_worker_times_finished_trials_one_at_a_time(ran, tasks):
    found = [store.load(ran.runs, trial.id) for trial in ran.good]
    taken, said = tuner.time_rows(Execution(tasks=tasks(ran.good, "ray", "ray"), resources=ONE), {})
    assert [timing.trial for timing in taken] == [trial.id for trial in ran.good]
    assert said == []
    for timing, record in zip(taken, found, strict=True):
        assert timing.weights_sha256 == record.weights_sha256
        assert (timing.device, timing.threads, timing.initial) == (record.environment.device, 1, False)
        assert timing.metrics["train_ms_per_batch"] > 0
        assert timing.shared == (timing.busy >= 0.5)  # not for the room that other trials had


def test_ray_and_inline_give_the_same_bits(ran):
    for trial in ran.good:
        ray, inline_ = (store.load(runs, trial.id) for runs in (ran.runs, ran.reference))
        assert ray.weights_sha256 == inline_.weights_sha256
        assert ray.code == inline_.code == fingerprints.of_trial(trial)
        for name in ("valid_ppl", "test_ppl", "last_valid_ppl", "last_test_ppl"):
            assert ray.metrics[name] == inline_.metrics[name]
        assert [(p.train_loss, p.valid_ppl) for p in ray.curve] == [(p.train_loss, p.valid_ppl) for p in inline_.curve]


def test_a_trial_that_diverges_leaves_a_record_of_it(ran):
    record = store.load(ran.runs, ran.bad.id)
    assert record.status == "diverged"
    assert record.message.startswith("Diverged: ")


@pytest.mark.guards("worker-followed-by-another")
def test_a_worker_that_dies_twice_in_one_place_is_not_tried_for_ever(ran, killer):
    ends = [event for event in ran.events if event.spec.id == ran.killed.id and event.kind == "finished"]
    (record,) = [event.record for event in ends]
    assert record == store.load(ran.runs, ran.killed.id)
    assert (record.status, record.environment.retries) == ("error", 2)
    assert record.message == "WorkerDied: the worker died 2 times after 0 steps of epoch 1"
    assert killer.read_text() == "killed\nkilled\n"


def test_every_trial_starts_and_finishes_with_its_record_although_the_listener_raised(ran):
    for trial in [*ran.good, ran.bad]:
        own = [event for event in ran.events if event.spec.id == trial.id]
        assert [event.kind for event in own if event.kind != "progress"] == ["started", "finished"]
        assert own[-1].record == store.load(ran.runs, trial.id)


def test_progress_of_the_workers_is_heard(ran):
    for trial in ran.good:
        own = [event.progress for event in ran.events if event.spec.id == trial.id and event.kind == "progress"]
        assert [(p.epoch, p.epochs) for p in own if p.step == p.steps] == [(1, 2), (2, 2)]


def test_nothing_of_tune_is_left_beside_the_records(ran):
    trials = [trial.id for trial in (*ran.good, ran.bad, ran.killed)]
    assert sorted(path.name for path in ran.runs.iterdir()) == sorted([".locks", *trials])
    assert sorted(path.name for path in (ran.runs / ran.good[0].id).iterdir()) == [
        "best.pt",
        "record.json",
        "test_nll.npz",
        "trial.log",
    ]


def test_more_than_any_node_has_is_refused_before_anything_starts(ran, suite, tasks, place):
    events = []
    message = r"a trial needs 10000 CPUs and 0 GPUs, and no node has that much; the nodes have: \d+ CPUs, \d+ GPUs"
    with pytest.raises(ExecutionError, match=message):
        tuner.execute(
            Execution(tasks=tasks(suite.trials, "refused", "ray"), resources=Resources(cpus=10_000, gpus=0.0)),
            events.append,
        )
    assert events == []
    assert not (place / "refused").exists()


def test_a_trial_that_does_not_fit_its_device_is_refused_before_anything_starts(ran, suite, tasks, place):
    first = suite.trials[0]
    coarse = first.model_copy(update={"train": first.train.model_copy(update={"precision": "tf32"})})
    with pytest.raises(ExecutionError, match=r"train\.precision is tf32, which only a GPU has"):
        tuner.execute(Execution(tasks=tasks([first, coarse], "unfit", "ray"), resources=ONE), pytest.fail)
    assert not (place / "unfit").exists()
