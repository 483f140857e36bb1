"""Which form of the loss is the fastest on a batch: measured once for a machine and sizes, and kept in the cache.

A trial takes the same form whenever it is trained again on the machine. Trials measure one after the other.
"""

import json
import math
import statistics
import time
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

import harness
from harness.kernels import products
from harness.kernels.forms import Form
from harness.kernels.mixture import Tensors
from harness.machine.environment import device_name
from harness.machine.files import kept

ROUNDS = 5
SECONDS = 2.0  # of a form; after them the round is the last one
TIE = 1.05  # a form that takes at most so many times as long as the fastest one is as fast


def fastest(forms: Sequence[Form], mixture: Tensors, targets_N: Tensor, z_loss: float) -> Form:
    """Return the first of the forms that takes at most TIE times as long as the fastest one for loss and gradients.

    Args:
        forms: in the order of preference. One that runs out of memory is not taken, unless all do.
    """
    by_name = {form.name: form for form in forms}

    def chosen() -> str:
        seconds = measured(forms, mixture, targets_N, z_loss)
        limit = TIE * min(seconds.values())
        return next(name for name, taken in seconds.items() if taken <= limit)

    return kept("forms", _key(by_name, mixture, z_loss), chosen, by_name.__getitem__)


def measured(forms: Sequence[Form], mixture: Tensors, targets_N: Tensor, z_loss: float) -> dict[str, float]:
    """Name -> the median seconds of loss and gradients, in interleaved rounds after one that does not count; infinity
    for a form that runs out of memory.
    """
    times: dict[str, list[float]] = {form.name: [] for form in forms}
    began, rounds = time.perf_counter(), 0
    while rounds <= ROUNDS and (rounds < 2 or time.perf_counter() - began < SECONDS * len(forms)):
        for form in forms:
            times[form.name].append(_seconds(form, mixture, targets_N, z_loss))
        rounds += 1
    return {name: math.inf if math.inf in each else statistics.median(each[1:]) for name, each in times.items()}


def _seconds(form: Form, mixture: Tensors, targets_N: Tensor, z_loss: float) -> float:
    own = [each if each is None else each.detach().requires_grad_(each.requires_grad) for each in mixture.given]
    weight_N = torch.full_like(targets_N, 1 / len(targets_N), dtype=mixture.wide)
    device = mixture.facets_NFE.device
    try:
        start = _now(device)
        tried = Tensors(*own, mixture.partitions, mixture.logit_map, mixture.log_epsilon)
        loss = form.mean_nll(tried, targets_N, weight_N, z_loss)
        torch.autograd.grad(loss, [each for each in own if each is not None and each.requires_grad])
        return _now(device) - start
    except torch.OutOfMemoryError:
        return math.inf


def _now(device: torch.device) -> float:
    """The time in seconds, when the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _key(names: Iterable[str], mixture: Tensors, z_loss: float) -> str:
    """What a choice depends on: the machine, the versions, the sizes and the forms."""
    device, multiplied = mixture.facets_NFE.device, products.current()
    given = [each if each is None else [*each.shape, str(each.dtype), each.requires_grad] for each in mixture.given]
    kind = type(mixture.logit_map).__name__
    machine = [device_name(device), products.flags(), torch.get_num_threads(), torch.__version__, harness.__version__]
    sizes = [given, mixture.partitions, kind, mixture.log_epsilon, bool(z_loss)]
    return json.dumps([*machine, *sizes, multiplied.precision, multiplied.route, *names])
