"""What happens to the command itself: killed, interrupted, started twice. RELIABILITY A1-A4, A9, A13, A17."""

import json
import os
import pty
import random
import signal
import time

import handmade
import pytest
from commands import EVERY_BACKBONE, EVERY_HEAD, PATIENCE, TEXT
from disturbed import UNTIMED, all_gone, descendants, result, wait_for, workers
from handmade import interrupted_before

from harness import plan
from harness.registry import HEADS
from harness.trial.run import run

SLOW = "faulty: {kind: slow, ms: 20}"  # 45 steps: about a second
HELD = "faulty: {kind: held, at: 20}"  # in the second epoch, until the test lets it go on
LONG = "train: {optimizer: adam, lr: 0.01, epochs: 12, batch_size: 4, seq_len: 7}"
SHORT = "train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}"
INLINE = ("--executor", "inline", "--no-tracking")
IMPATIENT = {"TUNE_FORCE_TRIAL_CLEANUP_S": "2"}  # with a worker that does not end
KILLS = os.environ.get("HARNESS_TEST_KILLS")


def killed_at_random(place, options, kills, shortest, longest, rng):
    """Run, SIGKILL and run again; how often each epoch of each trial may have been trained."""
    live = {}
    for _ in range(kills):
        driver = place.start("run", *options)
        time.sleep(rng.uniform(shortest, longest))
        below = descendants(driver.pid) if driver.poll() is None else []
        finished = set(place.records())
        driver.kill()
        driver.communicate()
        assert all_gone(below)
        for trial in {path.parent.name for path in place.runs.glob("*/trial.log")} - finished:
            live[trial] = live.get(trial, 0) + 1
    return live


@pytest.fixture(scope="module")
def slow_trials(module_place):
    """A function that makes places with two trials of a second or two each, four where many kills are asked for, and
    what these give undisturbed.
    """

    def make():
        seeds = "[1, 2]" if KILLS else "[1]"
        return module_place("softmax", "faulty: {kind: slow, ms: 5}", train=LONG, seeds=seeds)

    return make, make().here()


@pytest.mark.parametrize(("executor", "kills"), [("inline", 2), ("ray", 1)], ids=["inline", "ray"])
def test_driver_sigkill_at_random_moments_costs_no_bit_and_at_most_an_epoch(executor, kills, slow_trials):
    kills = int(KILLS or kills)
    rng = random.Random(f"{executor} {kills}")
    make, reference = slow_trials
    place = make()
    longest = 9.0 if executor == "inline" else 14.0
    options = ["--no-tracking", "--executor", executor]
    live = killed_at_random(place, options, kills, 3.0, longest, rng)
    before = {trial: (place.runs / trial / "record.json").stat().st_mtime_ns for trial in place.records()}
    done = place.run(*options)
    assert done.returncode == 0, done.stderr
    assert place.results() == reference
    for trial, written in before.items():  # no finished trial is run again
        assert (place.runs / trial / "record.json").stat().st_mtime_ns == written
    for trial in reference:
        epochs = place.epochs(trial)
        assert sorted(set(epochs)) == list(range(1, 13))
        assert len(epochs) - 12 <= live.get(trial, 0), epochs
    assert place.leftovers() == []


def test_every_head_and_backbone_goes_on_in_another_process_to_the_same_bits(module_place, monkeypatch):
    """Each trial is interrupted in its second epoch."""
    lines = [head.removeprefix("{")[: -1 if head.startswith("{") else None] for head in EVERY_HEAD]
    heads = {line.partition(":")[0]: line for line in lines}  # one line of each
    assert heads.keys() == {name for name in HEADS.names() if HEADS.origin(name).startswith("heads/")}
    only = ("backbone=lstm", "head=softmax")
    backbones = f"backbones: [{', '.join(EVERY_BACKBONE)}]"
    place = module_place(*heads.values(), backbones=backbones, train=SHORT, corpus=TEXT)
    undisturbed, rng, setting = {}, random.Random(0), place.setting()
    for spec in plan.select(place.trials(), only):
        with monkeypatch.context() as patch:  # the other run has a certificate
            handmade.without_certifier(patch)
            whole = run(setting(spec=spec, runs=place.folder / "whole"))
        undisturbed[spec.id] = result(whole.model_dump(mode="json"))
        with interrupted_before(rng.randrange(19, 38)):  # an epoch has 19 steps
            run(setting(spec=spec))
    assert place.records() == {}
    assert place.run(*INLINE, "--only", only[0], "--only", only[1]).returncode == 0
    assert place.results() == undisturbed
    assert len(undisturbed) == len(heads) + len(EVERY_BACKBONE) - 1
    assert {record["environment"]["sessions"] for record in place.records().values()} == {2}
    assert place.leftovers() == []


def test_ctrl_c_in_a_terminal_marks_trials_incomplete_and_leaves_with_130(place):
    there = place(HELD, "softmax")
    terminal, theirs = pty.openpty()
    driver = there.start("run", *("--only", "head=faulty", "--no-tracking"), stdout=theirs, stderr=theirs, stdin=theirs,
                         start_new_session=True, env=IMPATIENT)  # fmt: skip
    os.close(theirs)
    wait_for(there.checkpoints)
    below = descendants(driver.pid)
    os.killpg(driver.pid, signal.SIGINT)
    shown = read_all(terminal)
    assert driver.wait(PATIENCE) == 130
    assert all_gone(below)
    assert "interrupted: 0 of 1 trial finished, 1 with a checkpoint; start the same command again to go on" in shown
    assert "test ppl" not in shown.replace("valid ppl", "")
    assert there.records() == {}
    states = [trial["state"] for trial in json.loads(there.end(there.start("plan", "--json")).stdout)["trials"]]
    assert states == ["interrupted", "missing"]


@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_fail_fast_leaves_missing_trials_missing_and_they_can_be_run(executor, place):
    there = place("faulty: {kind: raise, at: 3}", HELD, "softmax")
    options = ("--executor", executor, "--no-tracking")
    done = there.run(*options, "--fail-fast", "--set", "resources.cpus=1")
    assert done.returncode == 1
    statuses = [record["status"] for record in there.records().values()]
    assert "error" in statuses
    assert len(statuses) < 3
    assert "not run" in done.stdout
    there.let_go()
    there.here()  # the failed ones stay failed
    assert sorted(record["status"] for record in there.records().values()) == ["error", "ok", "ok"]


@pytest.mark.parametrize(("executor", "heads"), [("inline", ["softmax", HELD]), ("ray", [HELD])], ids=["inline", "ray"])
def test_two_drivers_on_one_results_folder_start_every_trial_once(executor, heads, place):
    there = place(*heads)
    drivers = [there.start("run", "--no-tracking", "--executor", executor) for _ in range(2)]
    below = wait_for(lambda: workers(drivers[0].pid)) + descendants(drivers[0].pid) if executor == "ray" else []
    there.let_go()
    ended = [there.end(driver) for driver in drivers]
    assert [each.returncode for each in ended] == [0, 0], [each.stderr for each in ended]
    assert len(there.records()) == len(there.trials())
    for trial in there.records():
        log = (there.runs / trial / "trial.log").read_text()
        assert log.count(f"trial {trial}:") == 1
    assert there.leftovers() == []
    assert all_gone(below)  # nor is any process left of runs that end well


def test_a_trial_that_another_process_holds_is_waited_for(place):
    there = place(HELD)
    holder = there.start("run", *INLINE)
    wait_for(lambda: list(there.runs.glob("*/attempt.json")))
    second = there.start("run", *INLINE)
    assert any(line.startswith("start ") for line in second.stdout)  # and waits
    there.let_go()
    assert there.end(holder).returncode == there.end(second).returncode == 0
    (record,) = there.records().values()
    assert record["environment"]["sessions"] == 1


def test_times_that_a_killed_driver_was_taking_are_taken_by_the_same_command(place):
    there = place(SLOW)
    there.suite.write_text(there.suite.read_text().replace(UNTIMED, ""))
    driver = there.start("run", *INLINE)
    assert any(line.startswith("timing 1 model,") for line in driver.stdout)
    driver.kill()
    assert there.end(driver).returncode == -signal.SIGKILL
    before = there.records()
    assert not list(there.runs.glob("*/timing.json"))
    done = there.run(*INLINE)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.parent.name for path in there.runs.glob("*/timing.json")] == list(before)
    assert there.records() == before
    assert there.leftovers() == []


def read_all(terminal) -> str:
    """What a terminal shows until the last process has closed it."""
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            part = b""
        if not part:
            os.close(terminal)
            return shown.decode(errors="replace")
        shown += part
