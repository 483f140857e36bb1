"""What trials need and what nodes have. Expected values by hand."""

import golden
import pytest

from harness.errors import ExecutionError
from harness.execution.executors import Resources, allocate, check_workers

GOLDEN = golden.read("messages/execution/resources")


def nodes_of(case) -> list[dict[str, float]]:
    """Nodes as Ray tells of them."""
    given = case["nodes"] if "nodes" in case else [case["node"]]
    return [dict(zip(("CPU", "GPU"), map(float, node), strict=False)) for node in given]


def needs_of(case) -> Resources:
    return Resources(cpus=case["cpus"], gpus=case.get("gpus"))


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


@pytest.mark.parametrize("case", GOLDEN["places"], ids=str)
def test_the_device_follows_what_is_needed_and_what_there_is(trials, gpu_if, case):
    gpu_if(len(case["node"]) == 2)
    given = trials(1, case.get("device", "auto"))
    (own, *_), at_once = allocate(given, needs_of(case), nodes_of(case), local=True)
    assert [own.device, own.gpus, own.shared, at_once] == case["is"]
    assert own.threads == case["cpus"]


def test_on_a_cluster_the_nodes_say_whether_there_is_a_gpu(trials, gpu_if):
    for here, nodes, device in ((True, [[4]], "cpu"), (False, [[4], [16, 1]], "cuda")):
        gpu_if(here)
        (own, *_), at_once = allocate(trials(1), needs_of({"cpus": 1}), nodes_of({"nodes": nodes}), local=False)
        assert (own.device, at_once) == (device, None)  # a cluster may grow


@pytest.mark.parametrize("case", GOLDEN["workers"], ids=str)
def test_workers_of_a_trial_take_their_place_each(trials, gpu_if, case):
    gpu_if(False)
    (own, *_), at_once = allocate(trials(case["workers"]), needs_of(case), nodes_of(case), local=False)
    assert [own.device, own.gpus, at_once, pytest.approx(own.memory_share)] == case["is"]


@pytest.mark.parametrize("case", GOLDEN["refused"], ids=lambda case: case["says"])
def test_what_no_node_has_is_refused(trials, gpu_if, case):
    gpu_if(len(case["node"]) == 2)
    with pytest.raises(ExecutionError, match=case["says"]):
        allocate(trials(case.get("workers", 1)), needs_of(case), nodes_of(case), local=True)


def test_workers_and_gpus_that_do_not_go_together_are_refused(trials):
    for gpus, workers in ((None, 1), (0.5, 1), (1.0, 1), (None, 2), (0.0, 2), (2.0, 2)):
        check_workers(trials(workers), Resources(cpus=1, gpus=gpus))
    for gpus, workers in ((2.0, 1), (1.0, 2), (4.0, 2), (0.5, 2)):
        sentence = f"needs {gpus:g} GPUs and train.data_parallel is {workers}: each worker"
        with pytest.raises(ExecutionError, match=sentence):
            check_workers(trials(workers), Resources(cpus=1, gpus=gpus))
