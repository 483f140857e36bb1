"""The resources of a trial: what it needs, on which device it runs, and how many trials run at the same time.

Ray is not imported here.
"""

from dataclasses import dataclass, replace

from harness.errors import ExecutionError
from harness.machine.environment import resolve_device
from harness.trial.task import Task

LOCAL = "local"  # the address that stands for this machine alone, without a cluster
Node = dict[str, float]  # resource ('CPU', 'GPU') -> how much of it a node has


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one trial needs. A data-parallel trial needs `cpus` for each worker.

    Args:
        cpus: CPU cores, which is also the number of torch threads.
        gpus: GPUs or a share of one. 0: the trial runs on the CPU. None: one GPU for each worker where a GPU exists.
    """

    cpus: int
    gpus: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """How trials are placed on the nodes.

    Args:
        tasks: the trials, with their device, threads, GPUs, and shares of the machine filled in.
        max_concurrent: how many trials may run at the same time; None when Ray Tune decides.
    """

    tasks: list[Task]
    max_concurrent: int | None


def check_workers(tasks: list[Task], resources: Resources) -> None:
    """Raises ExecutionError when the number of a trial's workers and its number of GPUs contradict each other."""
    for workers in sorted({task.spec.train.data_parallel for task in tasks}):
        one_gpu_or_less = workers == 1 and (resources.gpus or 0) <= 1
        if not one_gpu_or_less and resources.gpus not in (None, 0, workers):
            raise ExecutionError(
                f"a trial needs {resources.gpus:g} GPUs and train.data_parallel is {workers}: each worker uses one "
                "GPU, and a trial with one worker at most one; change resources.gpus in the suite or --gpus-per-trial"
            )


def allocate(tasks: list[Task], resources: Resources, nodes: list[Node], *, local: bool) -> Allocation:
    """Choose the device, and compute what one worker needs and how many trials fit on the nodes.

    Args:
        tasks: of one run: all for the same device.
        nodes: the nodes of the cluster.
        local: True when the only node is this machine. A cluster may grow, so Ray Tune decides there how many trials
            run at the same time; but Tune does not count the workers of data-parallel trials, so they are limited here.
    Raises: ExecutionError when the nodes cannot hold one trial.
    """
    workers = max(task.spec.train.data_parallel for task in tasks)
    device = _device(tasks[0].device, resources, nodes, local=local)
    gpus = 0.0 if device == "cpu" else (resources.gpus or workers) / workers
    of_worker = Resources(cpus=resources.cpus, gpus=gpus)
    capacities = [_capacity(node, of_worker) for node in nodes]
    at_once = sum(capacities) // workers
    if not at_once:
        raise ExecutionError(_too_large(of_worker, workers, nodes))
    shared = min(at_once, len(tasks)) > 1
    workers_on_a_node = min(len(tasks) * workers, max(capacities))
    places = {"device": device, "threads": resources.cpus, "gpus": gpus, "memory_share": 1 / max(workers_on_a_node, 1)}
    return Allocation(
        tasks=[replace(task, **places, shared=task.shared or shared) for task in tasks],
        max_concurrent=at_once if local or workers > 1 else None,
    )


def _device(asked: str, resources: Resources, nodes: list[Node], *, local: bool) -> str:
    if resources.gpus == 0 and asked == "auto":
        return "cpu"
    if local:
        return resolve_device(asked).type
    if asked != "auto":
        return asked
    return "cuda" if any(node.get("GPU", 0) for node in nodes) else "cpu"


def _capacity(node: Node, worker: Resources) -> int:
    """How many workers fit on a node at the same time."""
    by_cpu = int(node.get("CPU", 0) // worker.cpus)
    return min(by_cpu, int(node.get("GPU", 0) / worker.gpus + 1e-9)) if worker.gpus else by_cpu


def _too_large(worker: Resources, workers: int, nodes: list[Node]) -> str:
    available = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes)
    needed = f"{worker.cpus} CPUs and {worker.gpus:g} GPUs"
    if workers == 1:
        return f"a trial needs {needed}, and no node has that much; the nodes have: {available}"
    return f"a trial needs {workers} times {needed}, and the nodes together do not have that much: {available}"
