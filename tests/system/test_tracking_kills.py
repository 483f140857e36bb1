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
from harness.tracking.sync import Mirror, sync

# For n = 1, 2, ...: copies the results folder argv[1] to argv[2]/n, and synchronises the copy in a process that is
# killed before the n-th call of a method of MLflow's client. Prints the names of these methods; ends when no process
# was killed.
KILLED = """
import os, shutil, signal, sys
from itertools import count
from pathlib import Path
from mlflow import MlflowClient
from harness.tracking import sync

sync.MAX_METRICS = 5  # several calls of log_batch for each record
calls, deadly = count(1), 0

def dying(name, original):
    def call(*args, **kwargs):
        if next(calls) == deadly:
            os.write(1, f"{name}\\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    return call

for name in [name for name in dir(MlflowClient) if not name.startswith("_") and callable(getattr(MlflowClient, name))]:
    setattr(MlflowClient, name, dying(name, getattr(MlflowClient, name)))
for deadly in count(1):
    results = Path(shutil.copytree(sys.argv[1], Path(sys.argv[2]) / str(deadly)))
    child = os.fork()
    if child == 0:
        sync.sync(results, print)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != -signal.SIGKILL:
        sys.exit(code)
"""


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
    sync(expected, pytest.fail)
    old = records[0].model_copy(update={"status": "error", "metrics": {}, "curve": (), "message": "RuntimeError: no"})
    mirror = Mirror(results)
    for record in (old, records[2]):
        mirror.show(record)
    (folder / "left").mkdir()
    command = [sys.executable, "-c", KILLED, str(results), str(folder / "left")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=commands.PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    calls = done.stdout.split()
    left = [folder / "left" / str(n) for n in range(1, len(calls) + 1)]
    return SimpleNamespace(calls=calls, left=left, expected=dump(expected))


def test_a_process_was_killed_before_each_kind_of_call_and_the_digest_is_written_last(killed):
    writing = [name for name, _ in groupby(killed.calls) if not name.startswith(("search", "get"))]
    record = ["create_run", "log_batch", "set_terminated", "set_tag"]
    assert writing == ["delete_run", *record, *record, "delete_run"]
    # of each record one for the parameters, and four for ten metrics and two epochs of three curves, 5 at a time
    assert killed.calls.count("log_batch") == 2 * (1 + 4)


def test_sync_makes_the_runs_equal_to_those_rebuilt_from_nothing(killed):
    for call, results in zip(killed.calls, killed.left, strict=True):
        sync(results, pytest.fail)
        assert dump(results) == killed.expected, call
