"""Reading in a process of its own: what is sent and raised comes back, and neither memory nor time of it is ours."""

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest

from harness.corpora import limited as module
from harness.corpora.limited import allow, limited
from harness.errors import CorpusError

MIB = 2**20


def fill(size):
    return len(np.ones(size, dtype=np.uint8))


def test_what_is_sent_comes_in_its_order_and_from_another_process():
    def work(send):
        for each in ("a", "b", os.getpid()):
            send(each)

    *found, pid = limited(work, "it")
    assert found == ["a", "b"]
    assert pid != os.getpid()


def test_what_it_raises_is_raised_here():
    def work(send):
        send(1)
        raise CorpusError("line 3 is no text")

    found = limited(work, "it")
    assert next(found) == 1
    with pytest.raises(CorpusError, match=r"^line 3 is no text$"):
        next(found)


@pytest.mark.skipif(not module.LINUX, reason="memory is limited on Linux only")
@pytest.mark.parametrize(
    "work",
    [
        lambda send: send(fill(600 * MIB)),
        lambda send: (faulthandler.disable(), os.abort()),  # as Rust does
        lambda send: os.kill(os.getpid(), signal.SIGKILL),  # as Linux does
        lambda send: (allow(10 * MIB), send(fill(100 * MIB))),
    ],
    ids=["memory", "abort", "killed", "less"],
)
def test_more_memory_than_it_may_take_is_one_sentence(work):
    with pytest.raises(CorpusError, match=r"^it: to read it takes more memory .*; use another file, or free"):
        list(limited(work, "it", 300 * MIB))


def test_within_its_memory_it_reads():
    assert list(limited(lambda send: send(fill(100 * MIB)), "it", 300 * MIB)) == [100 * MIB]
    allow(0)  # this process has no limit
    assert fill(100 * MIB) == 100 * MIB


def test_it_ends_when_its_reader_stops():
    pids = []

    def work(send):
        send(os.getpid())
        signal.pause()

    found = limited(work, "it")
    pids.append(next(found))
    found.close()
    assert not psutil.pid_exists(pids[0])


def test_it_is_read_from_any_thread():
    found = []
    thread = threading.Thread(target=lambda: found.extend(limited(lambda send: send("text"), "it")))
    thread.start()
    thread.join()
    assert found == ["text"]


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_both(number):
    program = (
        "import os, time\nfrom harness.corpora.limited import limited\n"
        "def work(send):\n    send(os.getpid())\n    while True: time.sleep(60)\n"
        "for pid in limited(work, 'it'): print(pid, flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    ) as caller:
        pid = int(caller.stdout.readline())
        caller.send_signal(number)
        caller.wait(60)
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)  # the test's own time limit ends this
