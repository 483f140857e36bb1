"""A worker under Ray runs one trial, in a process of its own: what its end, or its death, means for the others."""

import json
import os
from types import SimpleNamespace

import pytest

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
    def __init__(self, dims, embedding, *, act="none"):
        super().__init__(dims, embedding)
        if dims.vocab_size == 64:
            return  # harness/trial/behaviour.py tries it, beside the trial
        with (PLACE / "processes.jsonl").open("a") as file:
            file.write(json.dumps([act, os.getpid(), os.nice(0)]) + "\\n")
        if act == "keep":
            KEPT.append(torch.zeros(600 * 1024**2 // 4).fill_(1))  # 600 MiB, touched
        if act == "raise":
            raise RuntimeError("planted")
        if act == "die" and not (PLACE / "died").exists():
            (PLACE / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def noted(place, plugin):
    """A head that equals the softmax and writes down which process builds it."""
    plugin("noted", "Noted", PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_TEST_WORKERS", str(place))
        patch.setattr(session, "cpus_available", lambda: 1)  # one trial after the other
        yield place


@pytest.fixture(scope="module")
def run_in_order(noted, suite, tasks, place):
    """A function: a name, and what each trial does -> the records in this order, and the process of each attempt."""

    def run(name: str, *acts: str) -> SimpleNamespace:
        first, events = suite.trials[0], []
        specs = [first.model_copy(update=_trial(number, act, first)) for number, act in enumerate(acts)]
        (noted / "processes.jsonl").unlink(missing_ok=True)
        tuner.execute(Execution(tasks=tasks(specs, name, "ray"), resources=ONE), events.append)
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
    return run_in_order("faults", "none", "diverge", "raise", "keep", "die", "none")


def test_each_attempt_has_a_process_of_its_own_and_trials_end_in_the_order_of_the_suite(ran):
    acts, processes, _ = zip(*ran.attempts, strict=True)
    assert acts == ("none", "none", "raise", "keep", "die", "die", "none")
    assert len(set(processes)) == len(processes)
    assert ran.ends == [spec.id for spec in ran.specs]
    assert [record.status for record in ran.records] == ["ok", "diverged", "error", "ok", "ok", "ok"]


@pytest.mark.guards("worker-niceness")
def test_workers_get_as_much_of_a_busy_machine_as_the_command(ran):
    assert {nice for _, _, nice in ran.attempts} == {os.nice(0)}


def test_only_a_worker_that_died_is_followed_by_another(ran):
    died = ran.specs[4].id
    assert ran.starts == [spec.id for spec in ran.specs[:5]] + [died, ran.specs[5].id]
    assert [record.environment.retries for record in ran.records] == [0, 0, 0, 0, 1, 0]


def test_what_one_trial_leaves_behind_does_not_reach_the_next(ran):
    before, *_, kept, _, after = (record.metrics.get("peak_memory_mib") for record in ran.records)
    assert kept > before + 550
    assert after < before + 100


def test_trials_of_fresh_processes_have_the_bits_of_trials_that_share_one(ran, suite, tasks, place):
    good = [spec for spec, record in zip(ran.specs, ran.records, strict=True) if record.status == "ok"]
    plain = [spec.model_copy(update={"head": suite.trials[0].head}) for spec in good]
    inline.execute(Execution(tasks=tasks(plain, "alone", "inline"), resources=ONE), lambda event: None)
    for spec in plain:
        here, there = (store.load(place / name, spec.id) for name in ("alone", "faults"))
        assert there.weights_sha256 == here.weights_sha256
        assert there.metrics["test_ppl"] == here.metrics["test_ppl"]
        losses = [[(point.train_loss, point.valid_ppl) for point in record.curve] for record in (here, there)]
        assert losses[0] == losses[1]
