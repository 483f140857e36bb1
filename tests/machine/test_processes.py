"""Whether the process that wrote a file has ended."""

import subprocess
import sys
import time

import pytest
from disturbed import wait_for

from harness.machine import processes


@pytest.mark.guards("process-id-reused")
def test_a_process_id_that_was_given_to_another_process_is_a_dead_writer():
    host, pid, started = processes.current_process().rsplit(" ", 2)
    assert not processes.has_ended(f"{host} {pid} {started}")
    assert processes.has_ended(f"{host} {pid} {float(started) - 60}")


def test_a_writer_that_is_dead_and_not_waited_for_is_gone():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host = processes.current_process().split()[0]
    writer = f"{host} {child.pid} {time.time():.2f}"
    assert not processes.has_ended(writer)
    child.kill()
    assert wait_for(lambda: processes.has_ended(writer))
    child.communicate()


@pytest.mark.parametrize("writer", ["elsewhere 1 5.00", "no writer"])
def test_processes_of_other_hosts_and_texts_of_other_forms_count_as_running(writer):
    assert not processes.has_ended(writer)
