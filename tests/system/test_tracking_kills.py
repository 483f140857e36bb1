"""A process that is killed between any two calls of MLflow's client: the next `sync` makes the runs right again."""

import shutil
import subprocess
import sys
from itertools import groupby
from types import SimpleNamespace

import commands
import handmade
import pytest
from shown import dump

from harness import plan
from harness.records import store
from harness.records.record import CurvePoint
from harness.tracking import database
from harness.tracking.tracker import Tracker

# For n = 1, 2, ...: copies the results folder argv[1] to argv[2]/n, and synchronises the copy in a process that is
# killed before the n-th call of a method of MLflow's client. Prints the names of these methods; ends when no process
# was killed.
KILLED = """
import os, shutil, signal, sys
from itertools import count
from pathlib import Path
from harness.records import store
from harness.tracking import tracker

tracker.MAX_METRICS = 5  # several calls of log_batch for each record
calls, deadly = count(1), 0

def dying(name, original):
    def call(*args, **kwargs):
        if next(calls) == deadly:
            os.write(1, f"{name}\\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    return call

client = tracker.MlflowClient
for name in [name for name in dir(client) if not name.startswith("_") and callable(getattr(client, name))]:
    setattr(client, name, dying(name, getattr(client, name)))
for deadly in count(1):
    results = Path(shutil.copytree(sys.argv[1], Path(sys.argv[2]) / str(deadly)))
    child = os.fork()
    if child == 0:
        runs = results / "runs" / "tiny"
        records = store.load_all(runs, [place.name for place in sorted(runs.iterdir())])[0].values()
        synced = tracker.Tracker(results)
        synced.catch_up("tiny", records, remove_others=True)
        synced.describe("tiny", "# tiny")
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != -signal.SIGKILL:
        sys.exit(code)
"""


def synchronise(results) -> None:
    runs = results / "runs" / "tiny"
    records = store.load_all(runs, [place.name for place in sorted(runs.iterdir())])[0].values()
    tracker = Tracker(results)
    tracker.catch_up("tiny", records, remove_others=True)
    tracker.describe("tiny", "# tiny")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The calls before which a process was killed, the results folders that were left, and the runs to expect.

    There is a record whose run shows an older record, a record without a run, and a run without a record.
    """
    folder = tmp_path_factory.mktemp("killed")
    (folder / "tiny.yaml").write_text(commands.SUITE)
    specs, results = plan.load(folder / "tiny.yaml").trials[:3], folder / "results"
    curve = tuple(CurvePoint(epoch=e, train_loss=2.5, valid_ppl=9.5, lr=0.01, seconds=0.5) for e in (1, 2))
    records = [
        handmade.record(suite="tiny", spec=spec, metrics={"valid_ppl": 9.5, "test_ppl": 9.25}, curve=curve)
        for spec in specs
    ]
    for record in records[:2]:
        store.save(record, results / "runs" / "tiny")
    expected = shutil.copytree(results, folder / "expected")
    synchronise(expected)
    old = records[0].model_copy(update={"status": "error", "metrics": {}, "curve": (), "message": "RuntimeError: no"})
    Tracker(results).catch_up("tiny", [old, records[2]])
    (folder / "left").mkdir()
    command = [sys.executable, "-c", KILLED, str(results), str(folder / "left")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=commands.PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    calls = done.stdout.split()
    left = [folder / "left" / str(n) for n in range(1, len(calls) + 1)]
    return SimpleNamespace(calls=calls, left=left, expected=dump(expected))


def test_a_process_was_killed_before_each_kind_of_call(killed):
    writing = [name for name, _ in groupby(killed.calls) if not name.startswith(("search", "get"))]
    record = ["create_run", "log_batch", "set_terminated"]
    assert writing == ["delete_run", *record, *record, "delete_run", "set_experiment_tag"]
    assert killed.calls.count("log_batch") == 6  # three calls for each record


def test_some_were_killed_within_a_run_and_it_is_known_as_incomplete(killed):
    within = [name in ("log_batch", "set_terminated") for name in killed.calls]
    assert [len(database.left_running(results)) for results in killed.left] == [int(each) for each in within]


def test_sync_makes_the_runs_equal_to_those_rebuilt_from_nothing(killed):
    for call, results in zip(killed.calls, killed.left, strict=True):
        synchronise(results)
        assert dump(results) == killed.expected, call
