"""A Ray cluster of two nodes on this machine, joined by its address: what becomes of trials when a node or a driver
dies, and of runs that no cluster takes. The node is killed in the last test.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest
from commands import PATIENCE
from disturbed import PLUGIN, all_gone, wait_for, workers
from filelock import FileLock

from harness.errors import ExecutionError
from harness.execution.ray import session as joining

SLOW = "faulty: {kind: slow, ms: 12}"  # 180 steps: three seconds
LONG = "train: {optimizer: adam, lr: 0.01, epochs: 12, batch_size: 4, seq_len: 7}"
SHAPE = {"train": LONG, "seeds": "[1, 2]"}
UP = "Ray runtime started"


class Node:
    """`ray start --block`: a node of one CPU, whose processes are all below this one.

    Args:
        folder: for what it writes; a short path, since Ray's sockets lie below it.
    """

    def __init__(self, folder: Path, environment: dict[str, str], *options: str):
        self.folder, self.log = folder, folder.with_suffix(".log")
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1", *options,
                   f"--temp-dir={folder}", "--object-store-memory=80000000", "--disable-usage-stats"]  # fmt: skip
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.seen: list[psutil.Process] = []

    def up(self) -> bool:
        """Whether it is part of its cluster."""
        assert self.process.poll() is None, self.log.read_text()
        return UP in self.log.read_text()

    def workers(self) -> list[psutil.Process]:
        """The processes on it that train."""
        return workers(self.process.pid)

    def kill(self) -> None:
        """SIGKILL for every process of it: the machine is gone."""
        if self.process.poll() is None:
            self.seen = psutil.Process(self.process.pid).children(recursive=True)
        for each in (self.process, *self.seen):
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait()
        psutil.wait_procs(self.seen, timeout=PATIENCE)


class Cluster:
    """A head node and another one, with a token of their own."""

    def __init__(self, folder: Path):
        paths = [str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.joining = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "HARNESS_"))}
        environment |= {"PYTHONPATH": os.pathsep.join(paths), "RAY_AUTH_MODE": "token", **self.joining}
        environment |= {"RAY_health_check_period_ms": "500"}  # a node is dead after five without an answer
        self.nodes = []
        try:
            self.nodes.append(Node(folder / "h", environment, "--head", "--port=0", "--include-dashboard=false"))
            wait_for(self.nodes[0].up)
            noted = folder / "h" / "ray_current_cluster"
            self.address = wait_for(lambda: noted.exists() and noted.read_text())
            self.nodes.append(Node(folder / "n", environment, f"--address={self.address}"))
            wait_for(self.nodes[1].up)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        for node in reversed(self.nodes):
            node.kill()

    def start(self, place, *options, **more) -> subprocess.Popen:
        """`harness run --address`, on the way."""
        return place.start("run", "--no-tracking", "--address", self.address, *options, env=self.joining, **more)

    def run(self, place, *options) -> subprocess.CompletedProcess:
        """`harness run --address`, to its end."""
        return place.end(self.start(place, *options))


@pytest.fixture(scope="module")
def cluster():
    folder = Path(tempfile.mkdtemp(prefix="hc-"))
    try:
        cluster = Cluster(folder)
        try:
            yield cluster
        finally:
            cluster.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def undisturbed(module_place) -> dict[str, tuple]:
    """The results of a run inline."""
    return module_place(SLOW, **SHAPE).here()


def scratch(place) -> list[Path]:
    """What Tune wrote for itself into the shared results."""
    return list(place.runs.glob(".harness-tune-*"))


def refused(done: subprocess.CompletedProcess) -> str:
    """The one sentence that a run was refused with."""
    assert done.returncode == 2, done.stderr
    (sentence,) = done.stderr.strip().splitlines()
    return sentence


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_an_address_where_nothing_listens_is_one_sentence_and_ray_is_not_asked(place, harness, monkeypatch):
    monkeypatch.setattr("ray.init", lambda **options: pytest.fail("Ray itself tries for 14 minutes"))
    there = place("softmax")
    address = f"127.0.0.1:{free_port()}"
    done = harness("run", there.suite, "--no-tracking", "--address", address, "--results", there.folder / "results")
    assert (done.code, done.out) == (2, "")
    said = f"no Ray cluster answers at {address} (Connection refused); is its head node running?"
    assert " ".join(done.err.split()) == said


@pytest.mark.parametrize(
    "address",
    ["host", "6379", ":6379", "ray://127.0.0.1:10001", "http://127.0.0.1:8265", "host:port", "host:99999", ""],
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ExecutionError, match="is not the address of a Ray cluster; expected HOST:PORT"):
        joining.refuse_silent(address)


def test_a_head_that_hangs_is_refused_in_time(monkeypatch):
    monkeypatch.setattr(joining, "JOIN_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:  # the kernel takes the connection, nobody answers
        with pytest.raises(ExecutionError, match=r"no Ray cluster answers at .* \(timed out\)"):
            joining.refuse_silent(f"127.0.0.1:{server.getsockname()[1]}")


def test_what_hangs_up_is_no_cluster():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up():
            line, _ = server.accept()
            line.recv(100)
            line.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(ExecutionError, match="is not a Ray cluster"):
            joining.refuse_silent(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_auto_with_the_address_file_of_a_dead_cluster_is_refused(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    joining.refuse_silent("auto")  # none is noted: Ray looks itself
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{free_port()}\n")
    with pytest.raises(ExecutionError, match=r"no Ray cluster answers at 127\.0\.0\.1"):
        joining.refuse_silent("auto")


def test_infeasible_resources_are_refused_although_all_nodes_together_have_them(cluster, place):
    said = refused(cluster.run(place("softmax"), "--cpus-per-trial", "2"))
    assert (
        said
        == "a trial needs 2 CPUs and 0 GPUs, and no node has that much; the nodes have: 1 CPUs, 0 GPUs; 1 CPUs, 0 GPUs"
        "; change resources in the suite, --cpus-per-trial or --gpus-per-trial"
    )


@pytest.mark.needs("conformance")
def test_a_head_of_the_users_folder_trains_on_both_nodes(cluster, place, monkeypatch):
    from harness.starters import templates

    there = place("latent", seeds="[1, 2]")
    monkeypatch.chdir(there.folder)
    templates.write("head", "latent")
    done = cluster.run(there)
    assert done.returncode == 0, done.stderr
    records = [json.loads(found.read_text()) for found in there.runs.glob("*/record.json")]
    assert [(record["status"], record["environment"]["executor"]) for record in records] == [("ok", "ray")] * 2
    assert len({record["code"]["head"] for record in records} - {"unknown"}) == 1
    assert scratch(there) == []  # the copies of the user's files lay there


def test_another_token_is_one_sentence(cluster, place):
    there = place("softmax")
    environment = {"RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_NUM_REDIS_GET_RETRIES": "2"}  # Ray's own 20: 20 s
    done = there.run("--no-tracking", "--address", cluster.address, env=environment)
    assert "the same Ray token" in refused(done)


def begun(place) -> set[str]:
    """The trials that a further run goes on with."""
    return {each.parent.name for each in place.checkpoints()} - set(place.records())


def held(node: Node) -> set[str]:
    """The trials whose locks its workers hold."""
    files = [Path(each.path) for worker in node.workers() for each in worker.open_files()]
    return {each.stem for each in files if each.suffix == ".lock"}


def counts(place) -> dict[str, tuple[int, int]]:
    """Trial id -> sessions and retries."""
    return {trial: (each["environment"]["sessions"], each["environment"]["retries"])
            for trial, each in place.records().items()}  # fmt: skip


def test_a_killed_driver_leaves_no_worker_and_no_lock_and_the_next_one_goes_on(cluster, undisturbed, module_place):
    place = module_place(SLOW, **SHAPE)
    driver = cluster.start(place)
    wait_for(lambda: begun(place))
    training = [worker for node in cluster.nodes for worker in node.workers()]
    assert training
    assert len(scratch(place)) == 1
    driver.send_signal(signal.SIGKILL)
    place.end(driver)
    assert all_gone(training)
    assert all(node.up() for node in cluster.nodes)
    for lock in (place.runs / ".locks").iterdir():
        with FileLock(lock, timeout=PATIENCE):  # a worker that began after the look above may still be ending
            pass
    left = begun(place)
    assert left
    done = cluster.run(place)
    assert done.returncode == 0, done.stderr
    assert place.results() == undisturbed
    assert {trial for trial, (sessions, _) in counts(place).items() if sessions == 2} == left
    assert scratch(place) == []
    assert place.leftovers() == []


def test_the_trial_of_a_node_that_dies_goes_on_elsewhere_from_its_checkpoint(cluster, undisturbed, module_place):
    place = module_place(SLOW, **SHAPE)
    driver = cluster.start(place)
    dying = cluster.nodes[1]
    (lost,) = wait_for(lambda: held(dying) & begun(place))
    dying.kill()
    done = place.end(driver)
    assert done.returncode == 0, done.stderr
    assert place.results() == undisturbed
    assert counts(place)[lost] == (2, 1)
    assert sorted(counts(place).values()) == [(1, 0), (2, 1)]
    assert scratch(place) == []
    assert place.leftovers() == []
