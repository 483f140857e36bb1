"""What is done when Ray fails, with a fit that fails where a test wants it."""

from dataclasses import replace

import pytest

from harness.errors import ExecutionError
from harness.execution.watcher import MAX_FITS, EndedForMemory, Watcher, run_all
from harness.records import store


class Executor:
    """Runs trials by `acts`: id -> what it does each time, 'ok', 'oom', 'crash' with the trial at work, 'break',
    or 'skip'.
    """

    def __init__(self, acts, record_of, listener=None):
        self.acts, self.record_of, self.listener, self.fits = acts, record_of, listener, []

    def run(self, tasks, *, fail_fast=False):
        self.watcher = Watcher(tasks, self.listener or (lambda event: None), fail_fast=fail_fast)
        run_all(self.watcher, self.fit, runner="Ray")
        return {trial: end.record for trial, end in self.watcher.ends.items()}

    def statuses(self, tasks) -> list[str]:
        ends = self.run(tasks)
        return [ends[spec.id].status for spec in tasks]

    def fit(self, tasks, at_once):
        self.fits.append(([task.id for task in tasks], at_once, tasks[0].retries))
        for task in tasks:
            act = self.acts[task.id].pop(0) if self.acts.get(task.id) else "ok"
            if act == "skip":
                continue
            if act == "break":
                raise RuntimeError("broken\nin two lines")
            self.watcher.started(task.id)
            if act == "crash":
                raise EndedForMemory("used up", share=0.51)
            if act == "crowded":  # Ray tries its worker again and again, and does not fail
                self.watcher.ended_for_memory(task.id, EndedForMemory("used up", share=0.1))
                continue
            if act == "others":
                raise EndedForMemory("used up by others", share=0.49)
            store.save(self.record_of(task.spec, act, f"in fit {len(self.fits)}"), task.runs)
            self.watcher.ended(task.id)
            if self.watcher.stopped:
                return


@pytest.fixture
def trials(suite, tasks, tmp_path):
    return tasks(suite.trials[:3], "", "ray", shared=True, runs=tmp_path)


def test_host_oom_the_trial_that_breaks_the_executor_down_is_tried_alone_and_the_others_go_on(record_of, trials):
    one, two, three = (spec.id for spec in trials)
    executor = Executor({two: ["crash", "ok"]}, record_of)
    assert executor.statuses(trials) == ["ok"] * 3
    assert executor.fits == [([one, two, three], None, 0), ([two], 1, 1), ([three], None, 0)]


def test_host_oom_only_the_culprit_fails(record_of, trials):
    executor = Executor({trials[1].id: ["crash", "crash"]}, record_of)
    ends = executor.run(trials)
    assert [ends[spec.id].status for spec in trials] == ["ok", "oom", "ok"]
    assert ends[trials[1].id].message == "used up"
    assert store.load(trials[0].runs, trials[1].id) == ends[trials[1].id]


def test_host_oom_by_other_programs_leaves_no_record(record_of, trials):
    executor = Executor({trials[1].id: ["others", "others"]}, record_of)
    ends = executor.run(trials)
    assert [ends[spec.id] and ends[spec.id].status for spec in trials] == ["ok", None, "ok"]
    assert executor.watcher.ends[trials[1].id].message == "used up by others"


def test_host_oom_a_trial_that_another_one_left_no_memory_is_tried_once_more_alone(record_of, trials):
    one, two, three = (spec.id for spec in trials)
    executor = Executor({one: ["oom", "oom"], two: ["crowded", "ok"]}, record_of)
    assert executor.statuses(trials) == ["oom", "ok", "ok"]
    assert executor.fits == [([one, two, three], None, 0), ([one, two], 1, 1)]


def test_host_oom_where_other_programs_use_the_memory_no_trial_is_tried_again(record_of, trials):
    executor = Executor({trials[1].id: ["crowded", "ok"]}, record_of)
    assert executor.run(trials)[trials[1].id] is None
    assert len(executor.fits) == 1


def test_an_executor_that_breaks_down_with_nobody_to_blame_is_a_sentence(record_of, trials):
    executor = Executor({trials[0].id: ["break"] * 10}, record_of)
    with pytest.raises(ExecutionError, match=r"Ray failed \(RuntimeError: broken\); start the same"):
        executor.run(trials)
    assert len(executor.fits) == MAX_FITS
    assert store.load_all(trials[0].runs, [trials[0].id]) == ({}, [])


def test_trials_that_a_fit_left_out_are_run_in_the_next_but_not_for_ever(record_of, trials):
    executor = Executor({trials[1].id: ["skip", "ok"]}, record_of)
    assert executor.statuses(trials) == ["ok"] * 3
    assert [fit[0] for fit in executor.fits] == [[spec.id for spec in trials], [trials[1].id]]
    executor = Executor({spec.id: ["skip"] * MAX_FITS for spec in trials}, record_of)
    with pytest.raises(ExecutionError, match=r"Ray failed \(it ran no trial\); start the same command again"):
        executor.run(trials)


def test_what_is_heard_of_a_trial_after_its_end_changes_nothing(record_of, trials):
    heard = []
    watcher = Watcher(trials, heard.append)
    store.save(record_of(trials[0].spec, "error", "planted"), trials[0].runs)
    for hear in (watcher.started, watcher.ended, watcher.ended):
        hear(trials[0].id)
    watcher.died(trials[0].id, "the worker died")
    assert [event.kind for event in heard] == ["started", "finished"]
    assert watcher.running == set()


def test_cuda_oom_beside_others_is_retried_once_alone(record_of, trials):
    executor = Executor({trials[0].id: ["oom", "ok"], trials[1].id: ["oom", "oom", "ok"]}, record_of)
    assert executor.statuses(trials) == ["ok", "oom", "ok"]
    assert executor.fits[1:] == [([trials[0].id, trials[1].id], 1, 1)]


def test_callback_raises_and_is_told_once(record_of, trials, capsys):
    def listener(event):
        raise RuntimeError("a listener's fault")

    assert len(Executor({}, record_of, listener).run(trials)) == 3
    assert capsys.readouterr().err.count("a listener's fault") == 1


def test_fail_fast_leaves_the_others_missing(record_of, trials):
    executor = Executor({trials[1].id: ["error"]}, record_of)
    ends = executor.run(trials, fail_fast=True)
    assert [ends[spec.id].status for spec in trials[:2]] == ["ok", "error"]
    assert trials[2].id not in ends
    assert executor.watcher.stopped


def test_a_worker_that_dies_before_it_began_does_not_end_with_the_record_of_an_earlier_run(record_of, trials):
    store.save(earlier := record_of(trials[0].spec, "error", "of an earlier run"), trials[0].runs)
    watcher = Watcher([replace(trials[0], replaces=store.digest(earlier))], lambda event: None)
    watcher.ended(trials[0].id)
    assert watcher.ends[trials[0].id].record is None


def test_a_record_that_was_made_after_all_is_kept_when_the_worker_dies(record_of, trials):
    watcher = Watcher(trials, lambda event: None)
    store.save(record_of(trials[0].spec), trials[0].runs)
    watcher.died(trials[0].id, "the worker died")
    assert watcher.ends[trials[0].id].record.status == "ok"
    watcher.died(trials[1].id, "the worker died")
    assert store.load(trials[0].runs, trials[1].id).message == "the worker died"
