"""What is done when an executor fails, with an executor that fails where a test wants it."""

from dataclasses import replace

import pytest

from harness.errors import ExecutionError
from harness.execution.rounds import MAX_ROUNDS, Watcher, in_rounds
from harness.records import store


class Executor:
    """Runs trials by `acts`: id -> what it does each time, 'ok', 'oom', 'crash' with the trial at work, 'break',
    or 'skip'.
    """

    def __init__(self, acts, setting, record_of, listener=None):
        self.acts, self.setting, self.record_of, self.listener, self.fits = acts, setting, record_of, listener, []

    def run(self, specs, *, fail_fast=False):
        self.watcher = Watcher(specs, self.setting, self.listener or (lambda event: None), fail_fast=fail_fast)
        in_rounds(specs, self.setting, self.watcher, self.fit)
        return {spec.id: self.watcher.ends[spec.id].record for spec in specs if spec.id in self.watcher.ends}

    def fit(self, specs, setting, at_once):
        self.fits.append(([spec.id for spec in specs], at_once, setting.retries))
        for spec in specs:
            act = self.acts[spec.id].pop(0) if self.acts.get(spec.id) else "ok"
            if act == "skip":
                continue
            if act == "break":
                raise RuntimeError("broken\nin two lines")
            self.watcher.started(spec.id)
            if act == "crash":
                raise RuntimeError("out of memory")
            store.save(self.record_of(spec, act, f"in fit {len(self.fits)}"), setting.runs)
            self.watcher.ended(spec.id)
            if self.watcher.stopped:
                return


@pytest.fixture
def shared(setting, tmp_path):
    made = setting(f"rounds-{tmp_path.name}", "ray")
    return type(made)(**{**{name: getattr(made, name) for name in made.__slots__}, "shared": True, "runs": tmp_path})


@pytest.fixture
def trials(suite):
    return list(suite.trials[:3])


def test_host_oom_the_trial_that_breaks_the_executor_down_is_tried_alone_and_the_others_go_on(
    shared, record_of, trials
):
    one, two, three = (spec.id for spec in trials)
    executor = Executor({two: ["crash", "ok"]}, shared, record_of)
    ends = executor.run(trials)
    assert {record.status for record in ends.values()} == {"ok"}
    assert executor.fits == [([one, two, three], None, 0), ([two], 1, 1), ([three], None, 0)]


def test_host_oom_only_the_culprit_fails(shared, record_of, trials):
    executor = Executor({trials[1].id: ["crash", "crash"]}, shared, record_of)
    ends = executor.run(trials)
    assert [ends[spec.id].status for spec in trials] == ["ok", "oom", "ok"]
    assert ends[trials[1].id].message.startswith(
        "the executor failed twice with this trial, the second time alone (Runtime"
    )
    assert store.load(shared.runs, trials[1].id) == ends[trials[1].id]


def test_an_executor_that_breaks_down_with_nobody_to_blame_is_a_sentence(shared, record_of, trials):
    executor = Executor({trials[0].id: ["break"] * 10}, shared, record_of)
    with pytest.raises(ExecutionError, match=r"the executor failed \(RuntimeError: broken\); start the same"):
        executor.run(trials)
    assert len(executor.fits) == MAX_ROUNDS


def test_trials_that_a_round_left_out_are_run_in_the_next(shared, record_of, trials):
    executor = Executor({trials[1].id: ["skip", "ok"]}, shared, record_of)
    assert {record.status for record in executor.run(trials).values()} == {"ok"}
    assert [fit[0] for fit in executor.fits] == [[spec.id for spec in trials], [trials[1].id]]


def test_a_round_that_runs_no_trial_is_not_tried_for_ever(shared, record_of, trials):
    executor = Executor({spec.id: ["skip"] for spec in trials}, shared, record_of)
    with pytest.raises(ExecutionError, match="the executor ran none of 3 trials; start the same command again"):
        executor.run(trials)


def test_what_is_heard_of_a_trial_after_its_end_changes_nothing(shared, record_of, trials):
    heard = []
    watcher = Watcher(trials, shared, heard.append)
    store.save(record_of(trials[0], "error", "planted"), shared.runs)
    for hear in (watcher.started, watcher.ended, watcher.started, watcher.ended):
        hear(trials[0].id)
    watcher.died(trials[0].id, "the worker died")
    assert [event.kind for event in heard] == ["started", "finished"]
    assert watcher.running == set()


def test_cuda_oom_beside_others_is_retried_once_alone(shared, record_of, trials):
    executor = Executor({trials[0].id: ["oom", "ok"], trials[1].id: ["oom", "oom", "ok"]}, shared, record_of)
    ends = executor.run(trials)
    assert [ends[spec.id].status for spec in trials] == ["ok", "oom", "ok"]
    assert [fit[0] for fit in executor.fits[1:]] == [[trials[0].id], [trials[1].id]]


def test_callback_raises_and_is_told_once(shared, record_of, trials, capsys):
    def listener(event):
        raise RuntimeError("a listener's fault")

    assert len(Executor({}, shared, record_of, listener).run(trials)) == 3
    assert capsys.readouterr().err.count("a listener's fault") == 1


def test_fail_fast_leaves_the_others_missing(shared, record_of, trials):
    executor = Executor({trials[1].id: ["error"]}, shared, record_of)
    ends = executor.run(trials, fail_fast=True)
    assert [ends[spec.id].status for spec in trials[:2]] == ["ok", "error"]
    assert trials[2].id not in ends
    assert executor.watcher.stopped


def test_a_worker_that_dies_before_it_began_does_not_end_with_the_record_of_an_earlier_run(shared, record_of, trials):
    earlier = record_of(trials[0], "error", "of an earlier run")
    store.save(earlier, shared.runs)
    replacing = replace(shared, replaces={trials[0].id: store.digest(earlier)})
    watcher = Watcher(trials, replacing, lambda event: None)
    watcher.ended(trials[0].id)
    assert watcher.ends[trials[0].id].record is None


def test_a_record_that_was_made_after_all_is_kept_when_the_worker_dies(shared, record_of, trials):
    watcher = Watcher(trials, shared, lambda event: None)
    store.save(record_of(trials[0]), shared.runs)
    watcher.died(trials[0].id, "the worker died")
    assert watcher.ends[trials[0].id].record.status == "ok"
    watcher.died(trials[1].id, "the worker died")
    assert store.load(shared.runs, trials[1].id).message == "the worker died"


def test_the_folders_that_dead_drivers_left_to_tune_are_removed(shared, tmp_path, monkeypatch):
    import socket
    import subprocess
    import tempfile

    from harness.execution.ray import schedule

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = tmp_path / f".harness-tune-{socket.gethostname()}-{dead.pid}-x"
    alive = tmp_path / f".harness-tune-{socket.gethostname()}-1-x"
    for folder in (left, alive):
        folder.mkdir()
    with schedule._scratch_folder(shared, "local") as scratch:
        assert [left.exists(), alive.exists()] == [False, True]
    assert not scratch.exists()
