"""A worker under Ray runs one trial after another, in one process: when it does, and what of one reaches the next."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from harness.execution import inline
from harness.execution.ray import callbacks, ray_session, schedule, worker
from harness.execution.resources import Resources
from harness.machine.stop_request import StopRequest
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
    def __init__(self, dims, embedding, *, act="none"):
        super().__init__(dims, embedding)
        if dims.vocab_size == 64:
            return  # harness/trial/behaviour.py tries it, beside the trial
        with (PLACE / "processes.jsonl").open("a") as file:
            file.write(json.dumps([act, os.getpid()]) + "\\n")
        if act in ("hold", "keep"):
            large = torch.zeros(600 * 1024**2 // 4).fill_(1)  # 600 MiB, touched
            KEPT.extend([large] if act == "keep" else [])
        if act == "raise":
            raise RuntimeError("planted")
        if act == "die" and not (PLACE / "died").exists():
            (PLACE / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if act in ("late", "refuse"):  # when Tune hands this process the next trial
            from ray.tune.trainable.function_trainable import FunctionTrainable

            end = {"late": lambda *_: os.kill(os.getpid(), signal.SIGKILL), "refuse": lambda *_: False}
            FunctionTrainable.reset_config = end[act]
"""


@pytest.fixture(scope="module")
def noted(place, plugin):
    """A head that equals the softmax and writes down which process builds it."""
    plugin("noted", "Noted", PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_TEST_WORKERS", str(place))
        patch.setattr(
            ray_session, "cpus_available", lambda: 1
        )  # one worker at a time: which trial follows which is known
        yield place


@pytest.fixture(scope="module")
def run_in_order(noted, suite, tasks, place):
    """A function: a name, and what each trial does -> the records in this order, and the process of each attempt."""

    def run(name: str, *acts: str) -> SimpleNamespace:
        first, events = suite.trials[0], []
        specs = [first.model_copy(update=_trial(number, act, first)) for number, act in enumerate(acts)]
        (noted / "processes.jsonl").unlink(missing_ok=True)
        schedule.execute(tasks(specs, name, "ray"), ONE, events.append)
        found = [store.load(place / name, spec.id) for spec in specs]
        attempts = [json.loads(line) for line in (noted / "processes.jsonl").read_text().splitlines()]
        starts = [event.spec.id for event in events if event.kind == "started"]
        ends = [event.spec.id for event in events if event.kind == "finished"]
        return SimpleNamespace(specs=specs, records=found, attempts=attempts, starts=starts, ends=ends)

    return run


def _trial(number: int, act: str, first) -> dict:
    """A trial of its own id; those that are `diverging` do so by their rate."""
    head = ComponentSpec(name="noted", params={} if act == "diverge" else {"act": act})
    train = first.train.model_copy(update={"lr": 1e30} if act == "diverge" else {})
    return {"id": f"{number:012x}", "head": head, "train": train, "seed": number + 1}


@pytest.fixture(scope="module")
def ran(run_in_order):
    """Good trials, with one of each fault between them."""
    return run_in_order("faults", "none", "none", "diverge", "none", "raise", "none", "die", "none", "none")


def test_trials_that_end_ok_run_in_one_process_in_the_order_of_the_suite(ran):
    processes = [process for _, process in ran.attempts]
    assert processes[0] == processes[1] == processes[2]  # the third diverges, which ends it
    assert processes[-1] == processes[-2]
    assert ran.ends == [spec.id for spec in ran.specs]


def test_a_worker_whose_trial_did_not_end_ok_runs_no_other(ran):
    acts, processes = zip(*ran.attempts, strict=True)
    assert acts == ("none", "none", "none", "none", "raise", "none", "die", "die", "none", "none")
    diverged, raised, died = 2, 4, 6
    for failed in (diverged, raised, died):
        assert processes[failed] not in processes[failed + 1 :]
    assert [record.status for record in ran.records] == ["ok"] * 2 + ["diverged", "ok", "error"] + ["ok"] * 4


def test_a_trial_is_not_run_again_because_its_worker_is_replaced(ran):
    assert len(ran.ends) == len(ran.specs)
    died = ran.specs[6].id
    assert [trial for trial in ran.starts if trial != died] == [spec.id for spec in ran.specs if spec.id != died]
    assert [record.environment.retries for record in ran.records] == [0] * 6 + [1, 0, 0]


def test_trials_that_share_a_process_have_the_bits_of_trials_that_do_not(ran, suite, tasks, place):
    good = [spec for spec, record in zip(ran.specs, ran.records, strict=True) if record.status == "ok"]
    plain = [spec.model_copy(update={"head": suite.trials[0].head}) for spec in good]
    inline.execute(tasks(plain, "alone", "inline"), ONE, lambda event: None)
    for spec in plain:
        here, there = (store.load(place / name, spec.id) for name in ("alone", "faults"))
        assert there.weights_sha256 == here.weights_sha256
        assert there.metrics["test_ppl"] == here.metrics["test_ppl"]
        losses = [[(point.train_loss, point.valid_ppl) for point in record.curve] for record in (here, there)]
        assert losses[0] == losses[1]


@pytest.fixture(scope="module")
def large(run_in_order):
    """Trials after one that needs much memory for a moment, and after one whose head keeps it for ever."""
    return run_in_order("large", "none", "hold", "none", "keep", "none")


def test_the_peak_of_a_trial_is_its_own_in_a_process_that_held_more_before(large):
    before, high, after, kept, last = (record.metrics["peak_memory_mib"] for record in large.records)
    assert min(high, kept) > before + 550
    assert max(after, last) < before + worker.MAX_GROWTH_MIB + 50


def test_a_worker_that_holds_much_memory_after_its_trial_runs_no_other(large):
    processes = dict(zip(range(5), (process for _, process in large.attempts), strict=True))
    assert processes[3] != processes[4]
    if sys.platform == "linux" and _peak_can_be_reset():
        assert processes[0] == processes[1] == processes[2] == processes[3]


def _peak_can_be_reset() -> bool:
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as counter:
            counter.write("5")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("act", ["late", "refuse"])
def test_a_worker_that_fails_between_two_trials_costs_none_of_them_its_record(run_in_order, act):
    found = run_in_order(act, act, "none", act, "none", "none")
    assert [record.status for record in found.records] == ["ok"] * 5
    assert sorted(found.ends) == [spec.id for spec in found.specs]
    assert len(found.attempts) == 5


def test_tune_gives_up_a_trial_and_only_its_own_failures_are_its_end():
    ended, waiting = [], {"a", "b"}
    listener = callbacks.Listener(SimpleNamespace(died=lambda trial, message: ended.append((trial, message))), waiting)
    for name, failures in (("a", callbacks.MAX_FAILURES), ("b", callbacks.MAX_FAILURES + 1)):
        of_tune = {"config": {"trial": {"id": name}}, "num_failures": failures}
        listener.on_trial_error(
            0, [], SimpleNamespace(**of_tune, get_error=lambda: RuntimeError("it is gone\nby a signal"))
        )
    assert waiting == set()
    assert ended == [("b", "the worker died 11 times (RuntimeError: it is gone)")]


@pytest.mark.parametrize(
    ("status", "workers", "age", "grown", "fault"),
    [
        ("ok", 1, 0.0, 0, ""),
        ("ok", 1, 0.0, 500, "its trials left 500 MiB of memory behind"),
        ("ok", 1, 600.0, 0, "it is 10.0 minutes old"),
        ("ok", 2, 0.0, 0, "its trial had several workers"),
        ("diverged", 1, 0.0, 0, "its trial ended as diverged"),
        ("lost", 1, 0.0, 0, "its trial ended as lost"),
    ],
)
def test_a_worker_is_used_again_while_young_small_and_without_a_fault(
    suite, monkeypatch, status, workers, age, grown, fault
):
    monkeypatch.setattr(worker, "_STARTED", worker.time.monotonic() - age)
    monkeypatch.setattr(worker, "_MIB_AT_START", 1000)
    monkeypatch.setattr(worker, "peak_memory_mib", lambda device: 1000 + grown)
    train = suite.trials[0].train.model_copy(update={"data_parallel": workers})
    assert worker.reason_to_retire(suite.trials[0].model_copy(update={"train": train}), status, "cpu") == fault


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system's allocator decides what it gives back")
def test_memory_that_a_trial_no_longer_needs_goes_back_to_the_system():
    script = """
import psutil, torch
from harness.execution.ray import worker
from harness.training import clocks

def mib():
    return psutil.Process().memory_info().rss / 2**20

before = mib()
large = [torch.ones(2**18) for _ in range(400)]  # 400 times 1 MiB, which the allocator may keep
large.append(large)  # a cycle, that only the garbage collector finds
held = mib()
del large
worker.clean("cpu")
print(held - before, mib() - before, clocks.peak_memory_mib(torch.device("cpu")))
"""
    # in a process of its own: one that has run many tests has free memory of its own, and takes from that
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    held, left, peak = map(float, done.stdout.split())
    assert held > 300
    assert left < 100
    assert peak > 0


def test_a_new_worker_does_nothing_for_a_trial_that_has_ended():
    worker.run_trial({"ended": True, "trial": None})


def test_a_trial_whose_worker_retires_has_ended_and_is_marked_so():
    heard, waiting = [], {"a", "b"}
    watcher = SimpleNamespace(started=heard.append, ended=heard.append)
    listener, stop = callbacks.Listener(watcher, waiting), callbacks.Stop(watcher, waiting, StopRequest())
    trial = SimpleNamespace(config={"trial": {"id": "a"}})
    listener.on_trial_start(0, [], trial)
    assert waiting == {"b"}
    result = {"retired": "its trial ended as lost"}
    assert not stop("", result)  # b waits for a worker, which Tune starts once this one has failed
    listener.on_trial_result(0, [], trial, result)
    assert heard == ["a", "a"]
    assert trial.config["ended"]
    waiting.discard("b")
    assert stop("", result)
    assert not stop("", {"step": 1})
    listener.on_trial_recover(0, [], trial)
    assert waiting == {"a"}
