"""What trials need and what nodes have. Expected values by hand."""

import pytest

from harness.errors import ExecutionError
from harness.execution.executors import Resources, allocate, check_workers

SMALL = {"CPU": 4.0}
LARGE = {"CPU": 16.0, "GPU": 1.0}
FOUR = {"CPU": 16.0, "GPU": 4.0}


@pytest.fixture
def trials(suite, tasks):
    """A function: number of workers, device -> eight trials that have so many."""

    def make(workers: int, device: str = "auto") -> list:
        spec = suite.trials[0]
        spec = spec.model_copy(update={"train": spec.train.model_copy(update={"data_parallel": workers})})
        return tasks([spec] * 8, "a", "ray", device=device)

    return make


@pytest.fixture
def gpu_if(monkeypatch):
    """A function that says whether this machine has a GPU."""
    return lambda there: monkeypatch.setattr("torch.cuda.is_available", lambda: there)


@pytest.mark.parametrize(
    ("node", "needed", "device", "expected"),
    [
        (SMALL, Resources(cpus=1, gpus=None), "auto", ("cpu", 0.0, True, 4)),
        (SMALL, Resources(cpus=3, gpus=0.2), "auto", ("cpu", 0.0, False, 1)),  # a share of no GPU: the CPU
        (LARGE, Resources(cpus=1, gpus=None), "auto", ("cuda", 1.0, False, 1)),
        (LARGE, Resources(cpus=1, gpus=0.2), "auto", ("cuda", 0.2, True, 5)),
        (LARGE, Resources(cpus=1, gpus=0.6), "auto", ("cuda", 0.6, False, 1)),
        (LARGE, Resources(cpus=1, gpus=0.0), "auto", ("cpu", 0.0, True, 16)),
        (LARGE, Resources(cpus=1, gpus=0.5), "cpu", ("cpu", 0.0, True, 16)),
    ],
)
def test_the_device_follows_what_is_needed_and_what_there_is(trials, gpu_if, node, needed, device, expected):
    gpu_if("GPU" in node)
    (own, *_), at_once = allocate(trials(1, device), needed, [node], local=True)
    assert (own.device, own.gpus, own.shared, at_once) == expected
    assert own.threads == needed.cpus


def test_on_a_cluster_the_nodes_say_whether_there_is_a_gpu(trials, gpu_if):
    for here, nodes, device in ((True, [SMALL], "cpu"), (False, [SMALL, LARGE], "cuda")):
        gpu_if(here)
        (own, *_), at_once = allocate(trials(1), Resources(cpus=1, gpus=None), nodes, local=False)
        assert (own.device, at_once) == (device, None)  # a cluster may grow


@pytest.mark.parametrize(
    ("nodes", "needed", "workers", "expected"),
    [
        ([SMALL], Resources(cpus=1, gpus=None), 2, ("cpu", 0.0, 2, 1 / 4)),  # two trials of two workers: 4 share a node
        ([SMALL], Resources(cpus=2, gpus=None), 2, ("cpu", 0.0, 1, 1 / 2)),
        ([SMALL, SMALL], Resources(cpus=4, gpus=None), 2, ("cpu", 0.0, 1, 1.0)),  # one worker on each node
        ([FOUR], Resources(cpus=1, gpus=None), 4, ("cuda", 1.0, 1, 1 / 4)),
        ([FOUR], Resources(cpus=1, gpus=2.0), 2, ("cuda", 1.0, 2, 1 / 4)),
        ([FOUR, LARGE], Resources(cpus=1, gpus=None), 2, ("cuda", 1.0, 2, 1 / 4)),  # five GPUs hold two pairs
    ],
)
def test_workers_of_a_trial_take_their_place_each(trials, gpu_if, nodes, needed, workers, expected):
    gpu_if(False)
    (own, *_), at_once = allocate(trials(workers), needed, nodes, local=False)
    assert (own.device, own.gpus, at_once) == expected[:3]
    assert own.memory_share == pytest.approx(expected[3])


@pytest.mark.parametrize(
    ("node", "cpus", "gpus", "workers", "message"),
    [
        (LARGE, 17, 0.0, 1, "needs 17 CPUs and 0 GPUs, and no node has that much; the nodes have: 16"),
        (LARGE, 1, 2.0, 1, "needs 1 CPUs and 2 GPUs, and no node has that much; the nodes have: 16"),
        (LARGE, 1, 2.0, 2, "needs 2 times 1 CPUs and 1 GPUs, and the nodes together do not have that much: 16"),
        (SMALL, 3, 0.0, 2, "needs 2 times 3 CPUs and 0 GPUs, and the nodes together do not have that much: 4"),
    ],
)
def test_what_no_node_has_is_refused(trials, gpu_if, node, cpus, gpus, workers, message):
    gpu_if("GPU" in node)
    with pytest.raises(ExecutionError, match=message):
        allocate(trials(workers), Resources(cpus=cpus, gpus=gpus), [node], local=True)


def test_workers_and_gpus_that_do_not_go_together_are_refused(trials):
    for gpus, workers in ((None, 1), (0.5, 1), (1.0, 1), (None, 2), (0.0, 2), (2.0, 2)):
        check_workers(trials(workers), Resources(cpus=1, gpus=gpus))
    for gpus, workers in ((2.0, 1), (1.0, 2), (4.0, 2), (0.5, 2)):
        sentence = f"needs {gpus:g} GPUs and train.data_parallel is {workers}: each worker"
        with pytest.raises(ExecutionError, match=sentence):
            check_workers(trials(workers), Resources(cpus=1, gpus=gpus))
