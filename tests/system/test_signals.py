"""SIGTERM and Ctrl-C while a trial trains: it is saved after the step under way, and the next run goes on there."""

import json
import re
import signal
import time

import pytest
from disturbed import Place, all_gone, descendants, suite_text, wait_for, workers

from harness.machine.limits import cpus_available
from harness.training.checkpoint import Checkpoints

AT = 20  # the step during which the signal comes, the fifth of the second epoch
HEAD = f"faulty: {{kind: held, at: {AT}, ms: 50}}"  # waits in that step until the test lets it go on
EPOCHS = 12
STEPS = 15 * EPOCHS
LONG = f"train: {{optimizer: adam, lr: 0.01, epochs: {EPOCHS}, batch_size: 4, seq_len: 7}}"
PATIENT = {"TUNE_FORCE_TRIAL_CLEANUP_S": "600"}  # with a worker that has to save its trial
TRANSFORMER = (
    "backbones: [{transformer_encoder: {d_model: 8, num_layers: 2, num_heads: 2, d_ff: 8, layer_dropout: 0.0}}]"
)
OPTIONS = ("--no-tracking", "--executor")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What the trial gives when nothing happens to it."""
    there = Place(tmp_path_factory.mktemp("undisturbed") / "place", suite_text(HEAD, train=LONG))
    there.let_go()
    return there.here()


def resumed_from(there) -> list[tuple[int, int]]:
    """Epoch and steps done of each checkpoint from which the trial went on."""
    (log,) = there.runs.glob("*/trial.log")
    found = re.findall(r"goes on from its checkpoint: epoch (\d+), (\d+) steps done", log.read_text())
    return [(int(epoch), int(steps)) for epoch, steps in found]


@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_sigterm_to_the_driver_saves_the_trial_after_the_step_under_way(executor, place, undisturbed):
    """Ctrl-C: tests/cli/test_run.py inline, tests/system/test_drivers.py under Ray with a worker that hangs."""
    there = place(HEAD, train=LONG)
    driver = there.start("run", *OPTIONS, executor)
    wait_for(there.held)
    below = descendants(driver.pid)
    driver.terminate()
    there.let_go()
    done = there.end(driver)
    assert done.returncode == 143, done.stderr
    assert "interrupted: 0 of 1 trial finished, 1 with a checkpoint" in done.stderr
    assert all_gone(below)
    assert there.records() == {}
    made = there.steps()
    if executor == "inline":
        assert made <= AT + 1
    assert there.here() == undisturbed
    assert there.steps() <= STEPS + 2
    ((epoch, steps),) = resumed_from(there)
    assert made - 2 <= 15 * (epoch - 1) + steps <= made
    (record,) = there.records().values()
    assert record["environment"]["sessions"] == 2
    assert there.leftovers() == []


def test_a_worker_that_gets_sigterm_saves_its_trial_and_another_goes_on(place, undisturbed):
    there = place(HEAD, train=LONG)
    driver = there.start("run", *OPTIONS, "ray")
    wait_for(there.held)
    (worker,) = workers(driver.pid)
    worker.terminate()
    there.let_go()
    done = there.end(driver)
    assert done.returncode == 0, done.stderr
    assert there.results() == undisturbed
    assert there.steps() <= STEPS + 2
    assert resumed_from(there) in ([(2, AT - 15)], [(2, AT - 14)])
    (record,) = there.records().values()
    assert (record["environment"]["sessions"], record["environment"]["retries"]) == (2, 1)
    assert all_gone([worker])


@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_a_second_signal_ends_at_once_whatever_a_trial_does(executor, place):
    there = place(HEAD, train=LONG)
    driver = there.start("run", *OPTIONS, executor, env=PATIENT)
    wait_for(there.held)
    below = descendants(driver.pid)
    while driver.poll() is None:
        driver.terminate()
        time.sleep(0.5)  # so that the second signal is not taken for the first
    assert there.end(driver).returncode in (143, -signal.SIGTERM)
    assert all_gone(below)
    assert there.steps() == AT
    assert there.records() == {}


def test_a_signal_that_is_ignored_stays_ignored(place, undisturbed):
    there = place(HEAD, train=LONG)
    ignored = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731 - as nohup, or a shell's background job
    driver = there.start("run", *OPTIONS, "inline", preexec_fn=ignored)
    wait_for(there.held)
    driver.send_signal(signal.SIGINT)
    there.let_go()
    assert there.end(driver).returncode == 0
    assert there.results() == undisturbed
    assert resumed_from(there) == []


@pytest.mark.skipif(cpus_available() < 2, reason="two workers need two processor cores")
def test_a_signal_to_the_driver_saves_a_trial_of_two_workers(place):
    """How it goes on from there: tests/gpu/test_data_parallel.py."""
    there = place(HEAD, train=LONG.replace("}", ", data_parallel: 2}"), backbones=TRANSFORMER)
    driver = there.start("run", *OPTIONS, "ray")
    wait_for(there.held)
    below = descendants(driver.pid)
    driver.terminate()
    there.let_go()
    done = there.end(driver)
    assert done.returncode == 143, done.stderr
    assert all_gone(below)
    assert there.records() == {}
    (trial,) = there.trials()
    epoch, steps = Checkpoints(there.runs / trial.id).newest(trial.id).position
    saved = 15 * (epoch - 1) + steps
    assert saved >= AT
    assert there.steps() <= 2 * (saved + 2)  # by two workers


TUNE = "tune: {trials: 2, epochs: 2, seed: 9, space: {train.lr: {log_uniform: [0.005, 0.02]}}}"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The results of both stages of a tuned suite, and the choice, when nothing happens."""
    there = Place(tmp_path_factory.mktemp("tuned") / "place", suite_text(HEAD, more=TUNE))
    there.let_go()
    done = there.run(*OPTIONS, "inline")
    assert done.returncode == 0, done.stderr
    assert len(there.results()) == 3  # two tuning trials and one of the table
    return there.results(), chosen(there)


def chosen(there) -> dict:
    return json.loads((there.runs / "tuning.json").read_text())


def test_a_signal_during_tuning_saves_the_trial_and_the_next_run_makes_the_same_choice(place, tuned):
    there = place(HEAD, more=TUNE)
    driver = there.start("run", *OPTIONS, "inline")
    wait_for(there.held)
    driver.terminate()
    there.let_go()
    assert there.end(driver).returncode == 143
    assert not (there.runs / "tuning.json").exists()
    done = there.run(*OPTIONS, "inline")
    assert done.returncode == 0, done.stderr
    assert (there.results(), chosen(there)) == tuned
    assert there.steps() <= 2 * 30 + 45 + 2  # two tuning trials of 2 epochs, one of 3; at most two steps again
