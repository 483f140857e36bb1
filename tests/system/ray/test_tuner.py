"""Ray Tune as the scheduler: one run of five trials, one after the other, serves all tests."""

import json
import os
import signal
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from harness.code import hashes
from harness.errors import ExecutionError
from harness.execution import inline
from harness.execution.executors import Execution, Resources
from harness.execution.ray import session, tuner
from harness.plan.specs import ComponentSpec
from harness.records import store

ONE = Resources(cpus=1, gpus=0.0)
PLUGIN = """\
import json, os, signal
from pathlib import Path

import torch

from harness.heads.softmax import Softmax

PLACE = Path(os.environ["HARNESS_TEST_WORKERS"])
KEPT = []


class Noted(Softmax):
    "A softmax that writes down which process builds it, and what happens to that."

    def __init__(self, dims, embedding, *, act="none"):
        super().__init__(dims, embedding)
        if embedding.weight.is_meta:  # where its FLOPs are counted
            return
        with (PLACE / "processes.jsonl").open("a") as file:
            file.write(json.dumps([act, os.getpid(), os.nice(0)]) + "\\n")
        if act == "keep":
            KEPT.append(torch.zeros(600 * 1024**2 // 4).fill_(1))  # 600 MiB, touched
        if act == "die once" and not (PLACE / "died").exists():
            (PLACE / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if act == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
"""


ACTS = ("keep", "die once", "die", "none")


def noted(spec, act: str):
    """A trial with the head of the plug-in, to whose worker something happens."""
    return spec.model_copy(update={"head": ComponentSpec(name="noted", params={"act": act})})


@pytest.fixture(scope="module")
def ran(suite, tasks, place, plugin):
    """Under Ray, started once: a softmax, heads to whose workers something happens, and a listener that raises at every
    start; then the first trial and the last inline, as softmax. Ray stays for the tests.
    """
    plugin("noted", "Noted", PLUGIN)
    events = []

    def listen(event):
        events.append(event)
        if event.kind == "started":
            raise RuntimeError("a listener's fault")

    first, *others = suite.trials
    trials = [first, *(noted(spec, act) for spec, act in zip(others, ACTS, strict=False))]
    plain = [first, trials[-1].model_copy(update={"head": first.head})]
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_TEST_WORKERS", str(place))
        patch.setattr(session, "cpus_available", lambda: 1)  # one trial after the other
        with session.ray_session("local") as failures:
            patch.setattr(tuner, "ray_session", lambda address: nullcontext(failures))
            assert signal.getsignal(signal.SIGTERM) == handler
            tuner.execute(Execution(tasks=tasks(trials, "ray", "ray"), resources=ONE), listen)
            inline.execute(Execution(tasks=tasks(plain, "inline", "inline"), resources=ONE), lambda event: None)
            records = [store.load(place / "ray", spec.id) for spec in trials]
            attempts = [json.loads(line) for line in (place / "processes.jsonl").read_text().splitlines()]
            yield SimpleNamespace(trials=trials, records=records, events=events, attempts=attempts, runs=place / "ray")


def test_each_attempt_has_a_process_of_its_own_and_trials_end_in_the_order_of_the_suite(ran):
    acts, processes, _ = zip(*ran.attempts, strict=True)
    assert acts == ("keep", "die once", "die once", "die", "die", "none")
    assert len(set(processes)) == len(processes)
    assert [event.spec.id for event in ran.events if event.kind == "finished"] == [spec.id for spec in ran.trials]
    assert [record.status for record in ran.records] == ["ok", "ok", "ok", "error", "ok"]
    assert {(record.environment.executor, record.environment.threads) for record in ran.records} == {("ray", 1)}


def test_workers_get_as_much_of_a_busy_machine_as_the_command(ran):
    assert {nice for _, _, nice in ran.attempts} == {os.nice(0)}


def test_a_worker_that_died_is_followed_by_another_but_not_for_ever(ran):
    starts = [event.spec.id for event in ran.events if event.kind == "started"]
    one, kept, once, always, last = (spec.id for spec in ran.trials)
    assert starts == [one, kept, once, once, always, always, always, last]  # the third writes the record
    assert [record.environment.retries for record in ran.records] == [0, 0, 1, 2, 0]
    assert ran.records[3].message == "WorkerDied: the worker died 2 times after 0 steps of epoch 1"


def test_what_one_trial_leaves_behind_does_not_reach_the_next(ran):
    before, kept, *_, after = (record.metrics.get("peak_memory_mib") for record in ran.records)
    assert kept > before + 550
    assert after < before + 100


def test_trials_of_fresh_processes_have_the_bits_of_trials_that_share_one(ran, place):
    for ours in (ran.records[0], ran.records[-1]):
        theirs = store.load(place / "inline", ours.spec.id)
        assert ours.weights_sha256 == theirs.weights_sha256
        for name in ("valid_ppl", "test_ppl", "last_valid_ppl", "last_test_ppl"):
            assert ours.metrics[name] == theirs.metrics[name]
        assert [(p.train_loss, p.valid_ppl) for p in ours.curve] == [(p.train_loss, p.valid_ppl) for p in theirs.curve]


def test_a_worker_notes_the_code_that_this_process_has(ran, suite):
    assert ran.records[0].spec == suite.trials[0]
    assert ran.records[0].code == hashes.of_trial(suite.trials[0])


def test_every_trial_starts_and_finishes_with_its_record_although_the_listener_raised(ran):
    for spec, record in zip(ran.trials, ran.records, strict=True):
        own = [event for event in ran.events if event.spec.id == spec.id]
        assert {event.kind for event in own if event.kind != "progress"} == {"started", "finished"}
        assert own[0].kind == "started"
        assert own[-1].record == record == store.load(ran.runs, spec.id)
    done = [event.progress for event in ran.events if event.spec == ran.trials[0] and event.kind == "progress"]
    assert [(p.epoch, p.epochs) for p in done if p.step == p.steps] == [(1, 2), (2, 2)]


def test_a_worker_times_finished_trials_one_at_a_time(ran, tasks):
    good, found = ([each[0], each[-1]] for each in (ran.trials, ran.records))
    records = {record.id: record for record in found}
    taken, said = tuner.time_rows(Execution(tasks=tasks(good, "ray", "ray"), resources=ONE), records)
    assert [timing.trial for timing in taken] == [trial.id for trial in good]
    assert said == []
    for timing, record in zip(taken, found, strict=True):
        assert timing.weights_sha256 == record.weights_sha256
        assert (timing.device, timing.threads, timing.initial) == (record.environment.device, 1, False)
        assert timing.metrics["train_ms_per_batch"] > 0
        assert timing.shared == (timing.busy >= 0.5)  # not for the room that other trials had


def test_nothing_of_tune_is_left_beside_the_records(ran):
    assert sorted(path.name for path in ran.runs.iterdir()) == sorted([".locks", *(spec.id for spec in ran.trials)])
    names = {path.name for path in (ran.runs / ran.trials[0].id).iterdir()}
    assert names == {"best.pt", "record.json", "test_nll.npz", "trial.log"}


@pytest.mark.parametrize(
    ("cpus", "precision", "message"),
    [
        (10_000, "fp32", r"a trial needs 10000 CPUs and 0 GPUs, and no node has that much; the nodes have: 1 CPUs, "),
        (1, "tf32", r"train\.precision is tf32, which only a GPU has"),
    ],
)
def test_what_no_node_has_is_refused_before_anything_starts(cpus, precision, message, ran, suite, tasks, place):
    first = suite.trials[0]
    other = first.model_copy(update={"train": first.train.model_copy(update={"precision": precision})})
    asked = Execution(tasks=tasks([first, other], "refused", "ray"), resources=Resources(cpus=cpus, gpus=0.0))
    with pytest.raises(ExecutionError, match=message):
        tuner.execute(asked, pytest.fail)
    assert not (place / "refused").exists()
