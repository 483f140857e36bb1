"""The inline executor: trials of this process, one after the other."""

import pytest

from harness.errors import ExecutionError
from harness.execution import inline
from harness.execution.executors import Execution, Resources
from harness.records import store
from harness.records.metrics import METRICS

ONE = Resources(cpus=1, gpus=0.0)


@pytest.fixture(scope="module")
def ran(suite, tasks, place):
    """The six trials run once: (Suite, folder of the records, events)."""
    events = []
    inline.execute(Execution(tasks=tasks(suite.trials, "inline", "inline"), resources=ONE), events.append)
    return suite, place / "inline", events


def test_every_trial_leaves_a_verified_record(ran):
    suite, runs, _ = ran
    found, warnings = store.load_all(runs, [trial.id for trial in suite.trials])
    assert warnings == []
    assert [(found[trial.id].status, found[trial.id].spec) for trial in suite.trials] == [
        ("ok", trial) for trial in suite.trials
    ]


def test_a_record_tells_how_it_was_run(ran):
    suite, runs, _ = ran
    record = store.load(runs, suite.trials[0].id)
    environment = record.environment
    assert (environment.executor, environment.threads, environment.shared) == ("inline", 1, False)
    assert record.suite == "tiny"
    assert [point.epoch for point in record.curve] == [1, 2]
    assert set(record.metrics) <= set(METRICS)
    assert (record.metrics["params_total"], record.metrics["params_head"]) == suite.params[record.id]


def test_trials_run_one_after_the_other_in_the_given_order(ran):
    suite, _, events = ran
    ends = [(event.kind, event.spec.id) for event in events if event.kind != "progress"]
    assert ends == [(kind, trial.id) for trial in suite.trials for kind in ("started", "finished")]
    current = None
    for event in events:
        current = event.spec.id if event.kind == "started" else current
        assert event.spec.id == current


def test_every_epoch_ends_with_a_progress_event(ran):
    suite, _, events = ran
    # 400 tokens in 4 columns of 100: 99 targets in segments of 7 -> 15 steps an epoch
    for trial in suite.trials:
        own = [event.progress for event in events if event.kind == "progress" and event.spec.id == trial.id]
        assert [p.epoch for p in own if p.step == p.steps] == [1, 2]
        assert {(p.epochs, p.steps) for p in own} == {(2, 15)}


def test_the_last_event_carries_the_saved_record(ran):
    _, runs, events = ran
    finished = [event for event in events if event.kind == "finished"]
    assert len(finished) == 6
    for event in finished:
        assert event.record == store.load(runs, event.spec.id)


def test_a_failed_trial_is_a_record_and_the_next_one_runs(suite, tasks, place):
    bad, good = suite.trials[:2]
    bad = bad.model_copy(update={"id": "f" * 12, "train": bad.train.model_copy(update={"lr": 1e30})})
    events = []
    inline.execute(Execution(tasks=tasks([bad, good], "failed", "inline"), resources=ONE), events.append)
    found = [event.record for event in events if event.kind == "finished"]
    assert [record.status for record in found] == ["diverged", "ok"]
    assert found[0].message.startswith("Diverged: ")
    assert "Traceback" in (place / "failed" / bad.id / "trial.log").read_text()


def test_a_trial_that_does_not_fit_its_device_is_refused_before_anything_starts(suite, tasks, place):
    first = suite.trials[0]
    graph = first.model_copy(update={"train": first.train.model_copy(update={"cuda_graph": "on"})})
    events = []
    with pytest.raises(ExecutionError, match=r"train\.cuda_graph is on, but the trials run on the CPU"):
        inline.execute(Execution(tasks=tasks([first, graph], "unfit", "inline"), resources=ONE), events.append)
    assert events == []
    assert not (place / "unfit").exists()


def test_more_cpus_than_there_are_is_refused_before_anything_starts(suite, tasks, place):
    events = []
    with pytest.raises(ExecutionError, match="a trial needs 10000 CPUs and this machine has"):
        inline.execute(
            Execution(tasks=tasks(suite.trials, "refused", "inline"), resources=Resources(cpus=10_000, gpus=0.0)),
            events.append,
        )
    assert events == []
    assert not (place / "refused").exists()
