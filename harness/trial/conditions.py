"""The conditions under which a trial is trained, and timed again later: all state of the process that bits or speed
depend on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from harness.kernels import products
from harness.kernels.products import Products
from harness.machine import environment
from harness.random_streams import own_generators
from harness.training.checkpoint import Checkpoint
from harness.trial.task import Task


def with_exact_route(task: Task, resumed: Checkpoint | None = None) -> Task:
    """The task with a route of products that is exact on this machine: the checkpoint's or else its own, where that is
    exact, and torch's default otherwise. On a GPU the task stays as it is.
    """
    if task.device != "cpu":
        return task
    return replace(task, route=products.checked_route(task.route if resumed is None else resumed.session.route))


@contextmanager
def conditions(task: Task) -> Iterator[None]:
    """Within it the trial's threads, determinism, random generators and route of float32 products are set. Afterwards
    they are as they were.
    """
    device, multiplied = torch.device(task.device), Products(route=task.route)
    with (
        environment.torch_threads(task.threads),
        environment.deterministic_algorithms(task.spec.train.deterministic),
        own_generators(task.spec.seed, device),
        products.using(multiplied),
        multiplied.switched(device),
    ):
        yield
