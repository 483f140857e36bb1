"""What the attempts before mean for the next one: deaths count, silence is a timeout, forms of the loss are left out.

Forms of the loss are checked on the CPU here, with a planted fault.
"""

from dataclasses import replace
from functools import partial

import handmade
import pytest
from handmade import interrupted_before

from harness import plan
from harness.kernels import rows
from harness.kernels.choice import FormChoice
from harness.kernels.forms import FORMS, LEAN, STORED, by_rows
from harness.training.checkpoint import Checkpoints
from harness.trial import sessions, stages
from harness.trial.run import run
from harness.trial.timing import BUSY_CORES

STEPS = 15


@pytest.fixture
def task(tiny_suite, tmp_path):
    return handmade.task(plan.load(tiny_suite).trials[0], tmp_path, driver="this run")


def test_deaths_in_one_place_are_counted_within_a_run_and_getting_on_forgives_them(tmp_path):
    deaths = [sessions.begin(tmp_path, "a", (1, 0)).deaths for _ in range(3)]
    assert deaths == [0, 1, 2]
    assert sessions.begin(tmp_path, "a", (2, 0)).deaths == 1
    other = sessions.begin(tmp_path, "b", (2, 0))
    assert (other.deaths, other.retries) == (0, 0)
    (tmp_path / sessions.FILE_NAME).write_text('{"driver": "a", "position": [1, 0], "deaths": 1, "retries": 1}')
    assert sessions.begin(tmp_path, "a", (1, 0)).deaths == 2  # after an attempt of an older version


def test_a_death_that_is_forgiven_does_not_count(tmp_path):
    assert [sessions.begin(tmp_path, "a", (1, 0)).deaths for _ in range(2)] == [0, 1]
    sessions.forgive(tmp_path)
    assert sessions.begin(tmp_path, "a", (1, 0)).deaths == 1  # it would be 2


def test_worker_sigkill_a_trial_that_died_twice_in_one_place_is_an_error_with_the_curve_so_far(task):
    for steps in (STEPS + 3, 2):
        with interrupted_before(steps):
            run(task)
    record = run(task)
    assert (record.status, record.environment.retries) == ("error", 2)
    assert record.message == "WorkerDied: the worker died 2 times after 0 steps of epoch 2"
    assert [point.epoch for point in record.curve] == [1]


def test_hang_whose_process_the_watchdog_ended_is_a_timeout(task):
    sessions.begin(task.folder, task.driver, (1, 0))
    (task.folder / sessions.STUCK).write_text("where it was")
    assert run(task).status == "timeout"
    assert "where it was" in (task.folder / "trial.log").read_text()
    assert not (task.folder / sessions.STUCK).exists()


@pytest.mark.parametrize(
    ("first", "second", "shared"), [(0.49, 0.49, False), (0.49, 0.5, True), (0.5, 0.49, True), (None, 0.5, True)]
)
def test_times_are_shared_where_others_used_half_a_core_in_any_session(task, monkeypatch, first, second, shared):
    used = iter([] if first is None else [first])
    monkeypatch.setattr(stages, "BUSY_CORES", BUSY_CORES)
    monkeypatch.setattr(stages.OtherWork, "cores", lambda self: next(used, second))
    if first is not None:
        with interrupted_before(STEPS + 3):
            run(task)
    assert run(task).environment.shared == shared


def test_the_peak_of_memory_is_that_of_all_sessions(task, monkeypatch):
    monkeypatch.setattr(stages, "peak_memory_mib", lambda device: 500.0)
    with interrupted_before(STEPS + 3):
        run(task)
    monkeypatch.setattr(stages, "peak_memory_mib", lambda device: 100.0)
    assert run(task).metrics["peak_memory_mib"] == 500


@pytest.mark.parametrize(("fault", "status", "kept"), [(MemoryError, "oom", True), (RuntimeError, "error", False)])
def test_a_trial_that_ran_out_of_memory_keeps_its_checkpoint(task, monkeypatch, fault, status, kept):
    with interrupted_before(STEPS + 3):
        run(task)

    def raising(*given):
        raise fault

    monkeypatch.setattr(stages, "built_model", raising)
    assert run(task).status == status
    assert (Checkpoints(task.folder).newest(task.id) is not None) == kept


def test_a_trial_begun_anew_by_force_goes_on_after_a_workers_death(task):
    anew = replace(task, fresh=True)
    with interrupted_before(STEPS + 3):
        run(anew)
    assert run(anew).environment.sessions == 2


def wrong(*given):
    result = rows.combine_rows_(*given)
    return result._replace(scale=1.01 * result.scale)


FAULTY = by_rows("rows", "a planted kernel", combine=wrong, fits=LEAN.fits)


@pytest.fixture
def checked_here(monkeypatch):
    """Trials check their forms on the CPU, the planted one first."""
    monkeypatch.setattr(sessions, "FormChoice", partial(FormChoice, forms=(FAULTY, *FORMS), devices=("cpu",)))


def test_a_wrong_form_is_left_out_of_the_trial_whose_weights_are_the_same_and_whose_record_says_so(
    task, tmp_path, request
):
    expected = run(task)
    request.getfixturevalue("checked_here")
    found = run(handmade.task(task.spec, runs=tmp_path / "again"))
    assert found.weights_sha256 == expected.weights_sha256
    assert expected.environment.switched_off == ()
    (sentence,) = found.environment.switched_off
    assert sentence.startswith("Left out on this device: a planted kernel, since the gradient of the")
    assert sentence in (tmp_path / "again" / task.id / "trial.log").read_text()


def test_a_resumed_trial_leaves_out_what_its_checkpoint_names(task, checked_here, monkeypatch):
    with interrupted_before(18):
        run(task)
    monkeypatch.setattr(sessions, "FormChoice", partial(FormChoice, forms=(FAULTY, *FORMS)))  # nothing is checked now
    found = run(task)
    assert found.environment.sessions == 2
    (sentence,) = found.environment.switched_off
    assert sentence == (
        "Left out on this device: a planted kernel, since it was left out before the trial was resumed; another form "
        "of it runs instead"
    )
    assert found.environment.changed == ()


@pytest.mark.parametrize(("pinned", "taken"), [("chunked", "lean"), ("stored", "stored")])
def test_a_form_that_the_suite_asks_for_trains(task, tmp_path, monkeypatch, pinned, taken):
    stored = replace(STORED, fits=lambda mixture, gradients: gradients)
    monkeypatch.setattr(sessions, "FormChoice", partial(FormChoice, forms=(stored, *FORMS)))
    train = task.spec.train.model_copy(update={"loss_form": pinned})
    spec = task.spec.model_copy(update={"train": train})
    assert run(handmade.task(spec, runs=tmp_path / "runs")).environment.loss_form == taken
