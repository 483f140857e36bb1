"""What a data-parallel trial's end is, by what its workers raised. The further workers themselves: test_parallel.py."""

from functools import partial

import pytest

from harness import plan
from harness.errors import CorpusError, StorageError
from harness.records import store
from harness.training.data_parallel import LostWorker
from harness.trial.run import Ended, Failed, run, settle
from harness.trial.task import Task


@pytest.fixture
def over(tiny_suite, tmp_path):
    """(trial, its task without it) of one whose workers were ended."""
    setting = partial(Task, suite="tiny", runs=tmp_path / "runs", data=tmp_path, device="cpu", executor="ray")
    return plan.load(tiny_suite, ("train.data_parallel=2",)).trials[0], setting


def test_the_record_of_the_first_worker_stands_whatever_others_raised(over):
    spec, setting = over
    record = run(setting(spec=spec))
    settle(setting(spec=spec), {0: Ended("ended"), 1: Failed("oom", "MemoryError", "")})
    assert store.load(setting.keywords["runs"], spec.id) == record
    with pytest.raises(LostWorker):  # it is the one to be replaced
        settle(setting(spec=spec, replaces=store.digest(record)), {1: RuntimeError("killed")})


def test_what_a_further_worker_raised_is_the_record_with_its_trace_in_the_log(over):
    spec, setting = over
    failures = {0: LostWorker("gone"), 1: Failed("oom", "MemoryError: planted", "Traceback: here")}
    settle(setting(spec=spec), failures)
    record = store.load(setting.keywords["runs"], spec.id)
    assert (record.status, record.message) == ("oom", "MemoryError: planted")
    log = (setting.keywords["runs"] / spec.id / "trial.log").read_text()
    assert "worker 1 of 2:\nTraceback: here" in log


@pytest.mark.parametrize("fault", [StorageError("a full disk"), CorpusError("no corpus")], ids=str)
def test_what_is_no_fault_of_the_trial_leaves_no_record(over, fault):
    spec, setting = over
    with pytest.raises(type(fault), match=str(fault)):
        settle(setting(spec=spec), {0: fault, 1: LostWorker("gone")})
    assert store.load(setting.keywords["runs"], spec.id) is None


@pytest.mark.parametrize("failures", [{}, {0: LostWorker("gone"), 1: RuntimeError("the actor died")}], ids=str)
def test_a_lost_worker_is_for_others_to_follow(over, failures):
    spec, setting = over
    with pytest.raises(LostWorker, match="actor died" if failures else "the workers could not be started"):
        settle(setting(spec=spec), failures)
    assert store.load(setting.keywords["runs"], spec.id) is None
