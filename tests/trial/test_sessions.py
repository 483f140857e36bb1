"""What the attempts before mean for the next one: deaths of workers are counted, silence is a timeout."""

from dataclasses import replace

import handmade
import pytest
from handmade import interrupted_before

from harness import plan
from harness.trial import sessions
from harness.trial.run import run

STEPS = 15


@pytest.fixture
def task(tiny_suite, tmp_path):
    return handmade.task(plan.load(tiny_suite).trials[0], tmp_path, driver="this run")


@pytest.mark.guards("deaths-counted", "deaths-forgiven")
def test_deaths_in_one_place_are_counted_within_a_run_and_getting_on_forgives_them(tmp_path):
    deaths = [sessions.begin(tmp_path, "a", (1, 0)).deaths for _ in range(3)]
    assert deaths == [0, 1, 2]
    assert sessions.begin(tmp_path, "a", (2, 0)).deaths == 1
    other = sessions.begin(tmp_path, "b", (2, 0))
    assert (other.deaths, other.retries) == (0, 0)


@pytest.mark.guards("curve-of-failed-trial", "two-deaths")
def test_worker_sigkill_a_trial_that_died_twice_in_one_place_is_an_error_with_the_curve_so_far(task):
    for steps in (STEPS + 3, 2):
        with interrupted_before(steps):
            run(task)
    record = run(task)
    assert (record.status, record.environment.retries) == ("error", 2)
    assert record.message == "WorkerDied: the worker died 2 times after 0 steps of epoch 2"
    assert [point.epoch for point in record.curve] == [1]


@pytest.mark.guards("stuck-is-timeout")
def test_hang_whose_process_the_watchdog_ended_is_a_timeout(task):
    sessions.begin(task.folder, task.driver, (1, 0))
    (task.folder / sessions.STUCK).write_text("where it was")
    assert run(task).status == "timeout"
    assert "where it was" in (task.folder / "trial.log").read_text()
    assert not (task.folder / sessions.STUCK).exists()


@pytest.mark.guards("fresh-only-once")
def test_a_trial_begun_anew_by_force_goes_on_after_a_workers_death(task):
    anew = replace(task, fresh=True)
    with interrupted_before(STEPS + 3):
        run(anew)
    assert run(anew).environment.sessions == 2


@pytest.mark.guards("ended-with-part")
def test_a_part_that_an_attempt_ended_with_is_left_out_by_all_that_follow_and_its_death_is_not_counted(tmp_path):
    first = sessions.begin(tmp_path, "a", (1, 0))
    assert sessions.left_out(first) == {}
    with sessions.trying(tmp_path, "lean"):
        pass
    with pytest.raises(KeyboardInterrupt), sessions.trying(tmp_path, "lean"):
        raise KeyboardInterrupt
    never_left = sessions.trying(tmp_path, "rows")
    never_left.__enter__()
    after_a_death = sessions.begin(tmp_path, "a", (1, 0))
    assert (after_a_death.deaths, after_a_death.retries) == (0, 1)
    assert list(sessions.left_out(after_a_death)) == ["rows"]
    for driver in ("a", "b"):
        assert list(sessions.left_out(sessions.begin(tmp_path, driver, (2, 0)))) == ["rows"]
    del never_left


def test_an_attempt_of_an_older_version_is_read(tmp_path):
    (tmp_path / sessions.FILE_NAME).write_text('{"driver": "a", "position": [1, 0], "deaths": 1, "retries": 1}')
    assert sessions.begin(tmp_path, "a", (1, 0)).deaths == 2
