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


def test_every_trial_leaves_a_verified_record_that_says_how_it_was_run(ran):
    suite, runs, _ = ran
    found, warnings = store.load_all(runs, [trial.id for trial in suite.trials])
    assert warnings == []
    assert [(found[each.id].status, found[each.id].spec) for each in suite.trials] == [("ok", t) for t in suite.trials]
    record = found[suite.trials[0].id]
    environment = record.environment
    assert (environment.executor, environment.threads, environment.shared) == ("inline", 1, False)
    assert record.suite == "tiny"
    assert [point.epoch for point in record.curve] == [1, 2]
    assert set(record.metrics) <= set(METRICS)
    assert (record.metrics["params_total"], record.metrics["params_head"]) == suite.params[record.id]


def test_trials_run_one_after_the_other_with_progress_at_every_epoch_and_the_saved_record_last(ran):
    suite, runs, events = ran
    # 400 tokens in 4 columns of 100: 99 targets in segments of 7 -> 15 steps an epoch
    for trial in suite.trials:
        own = [event for event in events if event.spec.id == trial.id]
        first = events.index(own[0])
        assert events[first : first + len(own)] == own
        assert [event.kind for event in own if event.kind != "progress"] == ["started", "finished"]
        assert own[-1].record == store.load(runs, trial.id)
        reports = [event.progress for event in own[1:-1]]
        assert [p.epoch for p in reports if p.step == p.steps] == [1, 2]
        assert {(p.epochs, p.steps) for p in reports} == {(2, 15)}
    assert [event.spec.id for event in events if event.kind == "started"] == [trial.id for trial in suite.trials]


def test_a_failed_trial_is_a_record_and_the_next_one_runs(suite, tasks, place):
    bad, good = suite.trials[:2]
    bad = bad.model_copy(update={"id": "f" * 12, "train": bad.train.model_copy(update={"lr": 1e30})})
    events = []
    inline.execute(Execution(tasks=tasks([bad, good], "failed", "inline"), resources=ONE), events.append)
    found = [event.record for event in events if event.kind == "finished"]
    assert [record.status for record in found] == ["diverged", "ok"]
    assert found[0].message.startswith("Diverged: ")
    assert "Traceback" in (place / "failed" / bad.id / "trial.log").read_text()


def test_what_does_not_fit_the_machine_is_refused_before_anything_starts(suite, tasks, place):
    first = suite.trials[0]
    graph = first.model_copy(update={"train": first.train.model_copy(update={"cuda_graph": "on"})})
    for specs, resources, sentence in (
        ([first, graph], ONE, r"train\.cuda_graph is on, but the trials run on the CPU"),
        (suite.trials, Resources(cpus=10_000, gpus=0.0), "a trial needs 10000 CPUs and this machine has"),
    ):
        events = []
        with pytest.raises(ExecutionError, match=sentence):
            inline.execute(Execution(tasks=tasks(specs, "unfit", "inline"), resources=resources), events.append)
        assert events == []
        assert not (place / "unfit").exists()
