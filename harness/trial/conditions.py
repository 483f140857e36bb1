"""The conditions under which a trial is trained, and timed again later: all state of the process that bits or speed
depend on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from harness.kernels import probe, products
from harness.kernels.products import Products
from harness.machine import environment
from harness.plan.specs import TrialSpec
from harness.random_streams import own_generators
from harness.training.checkpoint import Checkpoint
from harness.trial.setting import Setting


def with_exact_route(setting: Setting, resumed: Checkpoint | None = None) -> Setting:
    """A setting whose route of products is exact on this machine: the checkpoint's or else the setting's own, where
    that is exact, and torch's default otherwise. On a GPU the setting stays as it is.
    """
    if setting.device != "cpu":
        return setting
    return replace(setting, route=probe.checked_route(setting.route if resumed is None else resumed.session.route))


@contextmanager
def conditions(spec: TrialSpec, setting: Setting) -> Iterator[None]:
    """Within it the trial's threads, determinism, random generators and route of float32 products are set. Afterwards
    they are as they were.
    """
    device, multiplied = torch.device(setting.device), Products(route=setting.route)
    with (
        environment.torch_threads(setting.threads),
        environment.deterministic_algorithms(spec.train.deterministic),
        own_generators(spec.seed, device),
        products.using(multiplied),
        multiplied.switched(device),
    ):
        yield
