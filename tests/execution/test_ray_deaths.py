"""What is made of Ray's words on workers that died: whose fault it was, and the sentence. The words are Ray 2.60's."""

import golden
import pytest

from harness.execution.ray import deaths
from harness.execution.watcher import Watcher
from harness.records import store

MEMORY = """\
1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 192.0.2.2, ID: 4043) was \
{used}GB used / 23.54GB limit (0.95)
OOM kill reason: Memory usage 1853153280B exceeded threshold of 758295040B (3.0% of 25276502016B limit)
Selected to kill: (Task: job ID=01000000, pid=9245, actual memory used={held}GB, worker ID=3a40)
"""


@pytest.fixture
def given_up(suite, tasks, tmp_path):
    """A function: Ray's text -> the status of the trial's record, None for no record, and the message."""

    def ended(said):
        (task,) = tasks(suite.trials[:1], "", "ray", runs=tmp_path)
        watcher = Watcher([task], lambda event: None)
        watcher.started(task.id)
        deaths.give_up(watcher, task.id, said)
        record, end = store.load(tmp_path, task.id), watcher.ends[task.id]
        assert end.record == record
        return (None, end.message) if record is None else (record.status, record.message)

    return ended


@pytest.mark.parametrize("case", golden.read("messages/execution/deaths"), ids=lambda case: case["says"][-30:])
def test_a_worker_that_was_ended_for_memory_of_others_leaves_no_record(given_up, case):
    said = case.get("words")
    if said is None:
        used, held = case["memory"]
        said = MEMORY.format(used=used, held=held) if held else MEMORY.format(used=used, held=9).splitlines()[0]
    status, message = given_up(said)
    assert status == case["status"]
    assert message.startswith(case["says"])


def test_the_last_failure_counts():
    first = "Failure # 1 (occurred at 2026-11-28_23-07-05)\nThe actor died\n"
    text = first + "Failure # 2 (occurred at 2026-11-28_23-08-05)\nout of files\nmore\n"
    assert deaths.last(text) == "out of files\nmore\n"
    assert deaths.last("") == ""
