"""Locks: one holder at a time, and who waits says for whom."""

import os
import signal
import subprocess
import sys

import pytest

from harness.machine import locks

HOLD = "import sys, time\nfrom pathlib import Path\nfrom harness.machine.locks import held\n"
HOLD += "with held(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)\n"


@pytest.fixture
def other(tmp_path):
    """A lock, and another process that holds it."""
    place = tmp_path / "lock"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(place)], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"held\n"
        yield place, process
        process.kill()


def test_a_free_lock_is_held_by_nobody(tmp_path):
    place = tmp_path / "lock"
    assert not locks.is_held(place)
    with locks.held(place):
        assert locks.is_held(place)
        assert f"process {os.getpid()} on " in locks.held_by(place)
    assert not locks.is_held(place)
    assert [each.name for each in tmp_path.iterdir() if each != place] == []


@pytest.mark.system
def test_who_waits_says_for_whom_and_whether_it_is_stopped(other, monkeypatch, capfd):
    place, process = other
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    with pytest.raises(TimeoutError) as caught, locks.held(place, wait=0.3):
        pass
    stopped = f"that process is stopped: `kill -CONT {process.pid}` lets it go on, `kill -KILL {process.pid}` ends it"
    said = capfd.readouterr().err
    assert said.startswith(f"waiting for {place}, which is held by process {process.pid} on ")
    assert said.endswith(f"{stopped}\n")
    assert said.count("\n") == 1
    assert caught.value.strerror.endswith(stopped)
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()
    with locks.held(place, wait=60):
        pass


@pytest.mark.system
def test_one_that_runs_is_named_and_is_not_called_stopped(other):
    place, process = other
    assert locks.is_held(place)
    assert locks.held_by(place).startswith(f"held by process {process.pid} on ")
    assert locks.held_by(place).endswith("it is free when that process ends")


@pytest.mark.parametrize("content", ["", "host", "host pid start", "\0"])
def test_a_spoilt_note_of_the_holder_is_no_error(content, tmp_path):
    (tmp_path / "lock.holder").write_text(content)
    assert locks.held_by(tmp_path / "lock").startswith("held by ")
