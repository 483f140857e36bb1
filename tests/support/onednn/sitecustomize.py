"""The oneDNN of other machines, imitated on this one.

`HARNESS_TEST_ONEDNN=inexact make test` runs the tests as on such a machine:

- inexact: where oneDNN takes float32 products, it rounds their factors to bfloat16, as on a processor with AMX;
- absent: torch is built without oneDNN;
- slower: oneDNN is exact, and takes twice as long as torch's own products;
- faster: oneDNN is exact, and takes half as long.

tests/conftest.py calls `imitate` in its own process. It also puts this folder on PYTHONPATH. Python imports a module of
the name `sitecustomize` when it starts, so processes that a test starts imitate the same machine.
"""

import importlib.util
import os
import sys
from contextlib import contextmanager

VARIABLE = "HARNESS_TEST_ONEDNN"
SPEEDUPS = {"slower": 0.5, "faster": 2.0}
PROBE = "harness.trial.routes"


def imitate(machine: str, replace=setattr) -> None:
    """Make the oneDNN of this process that of `machine`. `replace` is called with an object, the name of one of its
    attributes and the attribute's new value. Raises ValueError for a machine that is not in the list above.
    """
    import torch

    from harness.kernels.products import Products
    from harness.trial import routes

    if machine == "inexact":
        replace(torch.backends.mkldnn, "is_available", lambda: True)
        replace(Products, "switched", _rounding(Products.switched))
    elif machine == "absent":
        replace(torch.backends.mkldnn, "is_available", lambda: False)
        replace(torch.backends.mkldnn, "enabled", False)
    elif machine in SPEEDUPS:
        replace(routes, "_speedup", lambda: SPEEDUPS[machine])
    else:
        raise ValueError(f"{VARIABLE}={machine}: expected inexact, absent, slower or faster")


def _rounding(switched):
    """`Products.switched` with float32 products that are rounded where oneDNN makes them."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Rounding(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "mm" in func.overloadpacket.__name__:  # mm, bmm, addmm, baddbmm: the last two arguments are the factors
                args = (*args[:-2], *(_rounded(factor) for factor in args[-2:]))
            return func(*args, **(kwargs or {}))

    def _rounded(factor):
        return factor.bfloat16().float() if factor.dtype == torch.float32 else factor

    @contextmanager
    def switched_and_rounding(self, device):
        with switched(self, device):
            if self.route == "onednn" and device.type == "cpu":
                with Rounding():
                    yield
            else:
                yield

    return switched_and_rounding


class _WhenImported:
    """Calls `imitate` once the probe's module has been imported, so that a process without it imports no torch."""

    def find_spec(self, name, path=None, target=None):
        if name != PROBE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            imitate(os.environ[VARIABLE])

        spec.loader.exec_module = exec_module
        return spec


if __name__ == "sitecustomize" and VARIABLE in os.environ:
    sys.meta_path.insert(0, _WhenImported())
