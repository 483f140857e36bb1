"""MLflow stays out of the processes that train, and a stale Ray address file out of the way: one run under Ray."""

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import commands
import pytest

# Every Python that starts with it on PYTHONPATH notes itself, and whether MLflow is looked for.
HOOK = """\
import os, sys
from importlib.abc import MetaPathFinder

def note(kind):
    with open(os.path.join(os.environ["HARNESS_TEST_NOTES"], f"{kind}-{os.getpid()}"), "w") as file:
        file.write(" ".join(sys.orig_argv))

class Hook(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "mlflow":
            note("mlflow")

sys.meta_path.insert(0, Hook())
note("started")
"""


@pytest.fixture(scope="module")
def hooked(tmp_path_factory):
    """The tiny suite's folder, in an environment with the hook and a stale address file of Ray's."""
    folder = tmp_path_factory.mktemp("hooked")
    (folder / "suites").mkdir()
    (folder / "suites" / "tiny.yaml").write_text(commands.SUITE)
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(HOOK)
    short = Path(tempfile.mkdtemp(prefix="h-", dir="/tmp"))  # Ray's sockets lie below it, and their paths are limited
    (short / "ray").mkdir()
    (short / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder / "hook"), prepend=os.pathsep)
        patch.setenv("RAY_TMPDIR", str(short))
        patch.delenv("RAY_AUTH_MODE", raising=False)
        yield SimpleNamespace(folder=folder, address=short / "ray" / "ray_current_cluster")
    shutil.rmtree(short, ignore_errors=True)


@pytest.fixture
def notes(hooked, tmp_path, monkeypatch):
    """A function: kind -> the processes that noted it, and their command lines."""
    monkeypatch.setenv("HARNESS_TEST_NOTES", str(tmp_path))
    return lambda kind: {int(p.name.rpartition("-")[2]): p.read_text() for p in tmp_path.glob(f"{kind}-*")}


def test_no_mlflow_in_worker_and_a_stale_cluster_file_is_ignored(hooked, notes):
    process = commands.started(hooked.folder, "run", "suites/tiny.yaml", "--only", "head=softmax,seed=1")
    out, err = process.communicate(timeout=commands.PATIENCE)
    assert (process.returncode, err) == (0, ""), out
    assert len(commands.record_files(hooked.folder)) == 1
    assert (hooked.folder / "results" / "mlflow.db").exists()
    assert any("default_worker.py" in line for line in notes("started").values())
    assert notes("mlflow").keys() == {process.pid}
    assert hooked.address.read_text() == "127.0.0.1:1"
