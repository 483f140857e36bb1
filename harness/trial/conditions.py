"""The conditions a trial is trained under, and timed again under later: all of the process' state that bits or speed
depend on.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.kernels import products
from harness.kernels.products import Products
from harness.machine import environment
from harness.plan.specs import TrialSpec
from harness.random_streams import own_generators
from harness.trial.setting import Setting


@contextmanager
def conditions(spec: TrialSpec, setting: Setting) -> Iterator[None]:
    """Within it: the trial's threads, determinism, random generators and route of float32 products. Afterwards all of
    them are as they were.
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
