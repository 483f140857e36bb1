"""From a YAML file to a Suite and its list of TrialSpec.

Planning starts no trial, downloads no file and allocates no model.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.plan.loading import load
    from harness.plan.selection import select
    from harness.plan.specs import ComponentSpec, TrainSpec, TrialSpec
    from harness.plan.suite import Suite

__all__ = ["ComponentSpec", "Suite", "TrainSpec", "TrialSpec", "load", "select"]

_MODULES = {"load": "loading", "Suite": "suite", "select": "selection"}  # the others are in `specs`


def __getattr__(name: str):
    """Import a public name when it is first used: a reader of records needs `harness.plan.specs`, and no torch."""
    if name in __all__:
        return getattr(importlib.import_module(f"harness.plan.{_MODULES.get(name, 'specs')}"), name)
    raise AttributeError(f"module 'harness.plan' has no attribute '{name}'")
