"""Claims against what nodes have. Expected values by hand."""

from dataclasses import replace

import pytest

from harness.errors import ExecutionError
from harness.execution.events import Claim
from harness.execution.resources import fitted, refuse_contradiction

SMALL = {"CPU": 4.0}
LARGE = {"CPU": 16.0, "GPU": 1.0}
FOUR = {"CPU": 16.0, "GPU": 4.0}


@pytest.fixture
def trials(suite):
    """A function: number of workers -> eight trials that have so many."""

    def make(workers: int) -> list:
        spec = suite.trials[0]
        return [spec.model_copy(update={"train": spec.train.model_copy(update={"data_parallel": workers})})] * 8

    return make


@pytest.fixture
def gpu_if(monkeypatch):
    """A function that says whether this machine has a GPU."""
    return lambda there: monkeypatch.setattr("torch.cuda.is_available", lambda: there)


@pytest.mark.parametrize(
    ("node", "claim", "device", "expected"),
    [
        (SMALL, Claim(cpus=1, gpus=None), "auto", ("cpu", 0.0, True, 4)),
        (SMALL, Claim(cpus=3, gpus=0.2), "auto", ("cpu", 0.0, False, 1)),  # a share of no GPU: the CPU
        (LARGE, Claim(cpus=1, gpus=None), "auto", ("cuda", 1.0, False, 1)),
        (LARGE, Claim(cpus=1, gpus=0.2), "auto", ("cuda", 0.2, True, 5)),
        (LARGE, Claim(cpus=1, gpus=0.6), "auto", ("cuda", 0.6, False, 1)),
        (LARGE, Claim(cpus=1, gpus=0.0), "auto", ("cpu", 0.0, True, 16)),
        (LARGE, Claim(cpus=1, gpus=0.5), "cpu", ("cpu", 0.0, True, 16)),
    ],
)
def test_the_device_follows_the_claim_and_what_there_is(setting, trials, gpu_if, node, claim, device, expected):
    gpu_if("GPU" in node)
    own, taken, at_once = fitted(replace(setting("a", "ray"), device=device), claim, trials(1), [node], local=True)
    assert (own.device, taken.gpus, own.shared, at_once) == expected
    assert (own.threads, taken.cpus) == (claim.cpus, claim.cpus)


def test_on_a_cluster_the_nodes_say_whether_there_is_a_gpu(setting, trials, gpu_if):
    auto = replace(setting("a", "ray"), device="auto")
    for here, nodes, device in ((True, [SMALL], "cpu"), (False, [SMALL, LARGE], "cuda")):
        gpu_if(here)
        own, _, at_once = fitted(auto, Claim(cpus=1, gpus=None), trials(1), nodes, local=False)
        assert (own.device, at_once) == (device, None)  # a cluster may grow


@pytest.mark.parametrize(
    ("nodes", "claim", "workers", "expected"),
    [
        ([SMALL], Claim(cpus=1, gpus=None), 2, ("cpu", 0.0, 2, 1 / 4)),  # two trials of two workers: 4 share a node
        ([SMALL], Claim(cpus=2, gpus=None), 2, ("cpu", 0.0, 1, 1 / 2)),
        ([SMALL, SMALL], Claim(cpus=4, gpus=None), 2, ("cpu", 0.0, 1, 1.0)),  # one worker on each node
        ([FOUR], Claim(cpus=1, gpus=None), 4, ("cuda", 1.0, 1, 1 / 4)),
        ([FOUR], Claim(cpus=1, gpus=2.0), 2, ("cuda", 1.0, 2, 1 / 4)),
        ([FOUR, LARGE], Claim(cpus=1, gpus=None), 2, ("cuda", 1.0, 2, 1 / 4)),  # five GPUs hold two pairs
    ],
)
def test_workers_of_a_trial_take_their_place_each(setting, trials, gpu_if, nodes, claim, workers, expected):
    auto = replace(setting("a", "ray"), device="auto")
    gpu_if(False)
    own, taken, at_once = fitted(auto, claim, trials(workers), nodes, local=False)
    assert (own.device, taken.gpus, at_once) == expected[:3]
    assert own.memory_share == pytest.approx(expected[3])


@pytest.mark.parametrize(
    ("node", "claim", "workers", "message"),
    [
        (LARGE, Claim(cpus=17, gpus=0.0), 1, "a trial claims 17 CPUs and 0 GPUs; there is no such node: 16 CPUs, 1"),
        (LARGE, Claim(cpus=1, gpus=2.0), 1, "a trial claims 1 CPUs and 2 GPUs; there is no such node: 16 CPUs, 1 GPUs"),
        (LARGE, Claim(cpus=1, gpus=2.0), 2, "claims 2 times 1 CPUs and 1 GPUs; the nodes do not have them: 16 CPUs"),
        (SMALL, Claim(cpus=3, gpus=0.0), 2, "claims 2 times 3 CPUs and 0 GPUs; the nodes do not have them: 4 CPUs, 0"),
    ],
)
def test_what_no_node_has_is_refused(setting, trials, gpu_if, node, claim, workers, message):
    gpu_if("GPU" in node)
    with pytest.raises(ExecutionError, match=message):
        fitted(replace(setting("a", "ray"), device="auto"), claim, trials(workers), [node], local=True)


@pytest.mark.parametrize(
    ("gpus", "workers", "good"),
    [
        *[(None, 1, True), (0.5, 1, True), (1.0, 1, True), (2.0, 1, False)],
        *[(None, 2, True), (0.0, 2, True), (2.0, 2, True), (1.0, 2, False), (4.0, 2, False), (0.5, 2, False)],
    ],
)
def test_workers_and_gpus_that_do_not_go_together_are_refused(trials, gpus, workers, good):
    claim = Claim(cpus=1, gpus=gpus)
    if good:
        refuse_contradiction(trials(workers), claim)
        return
    with pytest.raises(ExecutionError, match=f"claims {gpus:g} GPUs and train.data_parallel is {workers}: each worker"):
        refuse_contradiction(trials(workers), claim)
