"""What a data-parallel trial's end is, by what its workers raised. The further workers themselves: test_parallel.py."""

from dataclasses import replace

import handmade
import pytest

from harness import plan
from harness.errors import CorpusError, StorageError
from harness.records import store
from harness.training.data_parallel import LostWorker
from harness.trial.run import Ended, Failed, run, settle


@pytest.fixture
def task(tiny_suite, tmp_path):
    """That of a trial whose workers were ended."""
    spec = plan.load(tiny_suite, ("train.data_parallel=2",)).trials[0]
    return handmade.task(spec, tmp_path, executor="ray")


def test_the_record_of_the_first_worker_stands_whatever_others_raised(task):
    record = run(task)
    settle(task, {0: Ended("ended"), 1: Failed("oom", "MemoryError", "")})
    assert store.load(task.runs, task.id) == record
    with pytest.raises(LostWorker):  # it is the one to be replaced
        settle(replace(task, replaces=store.digest(record)), {1: RuntimeError("killed")})


def test_what_a_further_worker_raised_is_the_record_with_its_trace_in_the_log(task):
    settle(task, {0: LostWorker("gone"), 1: Failed("oom", "MemoryError: planted", "Traceback: here")})
    record = store.load(task.runs, task.id)
    assert (record.status, record.message) == ("oom", "MemoryError: planted")
    assert "worker 1 of 2:\nTraceback: here" in (task.folder / "trial.log").read_text()


@pytest.mark.parametrize(
    ("failures", "fault", "message"),
    [
        ({0: StorageError("a full disk"), 1: LostWorker("gone")}, StorageError, "a full disk"),
        ({0: CorpusError("no corpus"), 1: LostWorker("gone")}, CorpusError, "no corpus"),
        # a lost worker is for others to follow
        ({}, LostWorker, "the workers could not be started"),
        ({0: LostWorker("gone"), 1: RuntimeError("the actor died")}, LostWorker, "actor died"),
    ],
    ids=str,
)
def test_what_is_no_fault_of_the_trial_leaves_no_record(task, failures, fault, message):
    with pytest.raises(fault, match=message):
        settle(task, failures)
    assert store.load(task.runs, task.id) is None
