"""When trials and the whole run will be through, by hand calculation."""

import pytest

from harness.execution.live import Pace
from harness.training.loop import Progress


def progress(epoch: int, step: int, **changes) -> Progress:
    return Progress(
        epoch=epoch, step=step, **{"epochs": 2, "steps": 10, "valid_ppl": None, "ms_per_batch": 500.0, **changes}
    )


def begun(pace: Pace, trial, *reports: tuple[float, Progress], start: float = 0.0) -> None:
    """A trial starts, and is heard of at the times of its reports."""
    pace.started(trial, start)
    for now, report in reports:
        pace.progressed(trial, report, now)


def finish(pace: Pace, trial, start: float, end: float) -> None:
    begun(pace, trial, ((start + end) / 2, progress(1, 10)), (end, progress(2, 10)), start=start)
    pace.ended(trial, end)


def left(pace: Pace, now: float) -> tuple[int, int, float | None]:
    """How many trials are running and waiting, and the seconds until all have ended."""
    return len(pace.running), len(pace.waiting), pace.remaining_of_all(now)


def test_nothing_is_known_before_anything_is_measured_and_no_time_is_left_without_trials(suite):
    pace = Pace(suite.trials)
    assert left(pace, 0.0) == (0, 6, None)
    pace.started(suite.trials[0], 0.0)
    assert left(pace, 5.0) == (1, 5, None)
    assert pace.remaining(suite.trials[0].id, 5.0) is None
    pace.ended(suite.trials[0], 6.0)  # it failed before its first report, which teaches nothing
    assert left(pace, 6.0) == (0, 5, None)
    pace = Pace(suite.trials[:1])
    finish(pace, suite.trials[0], 0.0, 10.0)
    assert left(pace, 10.0) == (0, 0, 0.0)


def test_a_first_report_tells_by_its_step_and_later_ones_by_the_clock(suite):
    trial, pace = suite.trials[0], Pace(suite.trials[:1])
    begun(pace, trial, (4.0, progress(1, 5)))
    assert pace.remaining(trial.id, 4.0) == 1.5 * 10 * 0.5  # 1.5 epochs of ten steps of half a second
    pace.progressed(trial, progress(1, 10), 10.0)  # half an epoch in six seconds: twelve an epoch, one is left
    assert pace.remaining(trial.id, 10.0) == pace.remaining_of_all(10.0) == 12.0
    pace.started(trial, 200.0)  # a trial that starts again is measured anew
    assert (len(pace.running), pace.remaining(trial.id, 200.0), pace.used(203.0)) == (1, None, 203.0)


def test_a_trial_is_measured_from_its_checkpoint_and_a_part_of_an_epoch_counts_as_its_part(suite):
    trial, resumed, partial = suite.trials[0], Pace(suite.trials[:1]), Pace(suite.trials[:1])
    begun(resumed, trial, (3.0, progress(8, 10, epochs=10)), (13.0, progress(9, 10, epochs=10)))
    assert resumed.remaining(trial.id, 13.0) == 10.0  # ten seconds an epoch, one is left; not 13 / 9
    begun(partial, trial, (0.0, progress(1, 10, epochs=1.5)), (10.0, progress(2, 1, epochs=1.5, steps=5)))
    assert partial.remaining(trial.id, 10.0) == pytest.approx(100.0 * 0.4)  # of a tenth of an epoch in ten seconds


def test_trials_that_wait_take_what_the_most_alike_took(suite):
    softmax, _, mos, *_ = suite.trials  # two seeds each of softmax, mos with K = 2, mos with K = 3
    pace = Pace(suite.trials)
    finish(pace, softmax, 0.0, 10.0)
    assert pace.remaining_of_all(10.0) == 5 * 10.0  # one after the other, ten seconds each
    finish(pace, mos, 10.0, 40.0)
    assert pace.remaining_of_all(40.0) == 10.0 + 30.0 + 2 * 20.0  # softmax, K = 2, K = 3 as their mean


def test_each_that_waits_takes_the_place_of_the_first_to_end(suite):
    first, second, third = suite.trials[:3]
    pace = Pace([first, second, third])
    begun(pace, first, (0.0, progress(1, 1)), (10.0, progress(1, 6)))  # half an epoch in ten seconds: 1.4 are 28
    begun(pace, second, (0.0, progress(1, 1)), (10.0, progress(2, 6)))  # one and a half: 0.4 epochs are 2.67 seconds
    assert pace.remaining(first.id, 10.0) == pytest.approx(28.0)
    assert pace.remaining(second.id, 10.0) == pytest.approx(8 / 3)
    # the third, mos, is as fast as the first, the only kind there is: 40 seconds, from when the second is through
    assert pace.remaining_of_all(10.0) == pytest.approx(8 / 3 + 40.0)


def test_places_that_are_free_for_a_moment_count(suite):
    pace = Pace(suite.trials[:4])
    for trial in suite.trials[:2]:
        begun(pace, trial, (5.0, progress(1, 10)), (8.0, progress(2, 10)))
    for trial in suite.trials[:2]:
        pace.ended(trial, 10.0)
    assert left(pace, 10.0) == (0, 2, 10.0)  # two at a time


def test_the_time_that_is_left_falls_with_the_clock_between_two_reports(suite):
    trial, pace = suite.trials[0], Pace(suite.trials[:2])
    begun(pace, trial, (0.0, progress(1, 5)), (6.0, progress(1, 10)))  # 12 seconds an epoch; the other trial takes two
    assert [pace.remaining(trial.id, now) for now in (6.0, 7.0, 10.0, 17.0, 18.0, 30.0)] == [12, 11, 8, 1, 0, 0]
    assert [pace.remaining_of_all(now) for now in (6.0, 7.0, 18.0, 30.0)] == [36, 35, 24, 24]


def test_the_time_that_devices_were_taken_never_falls_when_a_trial_ends(suite):
    train = suite.trials[0].train.model_copy(update={"data_parallel": 4})
    wide = suite.trials[0].model_copy(update={"train": train})
    pace = Pace([wide, suite.trials[1]])
    pace.started(wide, 0.0)
    pace.started(suite.trials[1], 5.0)
    assert pace.used(10.0) == 4 * 10 + 5
    pace.ended(wide, 10.0)
    assert (pace.used(10.0), pace.used(12.0)) == (4 * 10 + 5, 4 * 10 + 7)
