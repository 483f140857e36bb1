"""Compare language-model output heads on equal terms. Start reading at `harness.execution.run_suite`.

import harness

study = harness.run_suite("suites/quickstart.yaml")   # as `harness run`
study = harness.load_study("suites/quickstart.yaml")  # what there is, nothing is trained
study.frame()                                         # one line for each trial, as a pandas DataFrame
print(study.table())
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.execution.run_suite import RunOptions, load_study, run_suite

__version__ = "0.1.0"
__all__ = ["RunOptions", "load_study", "run_suite"]

DISTRIBUTION = "output-head-harness"


def __getattr__(name: str):
    """Import the public functions when they are first used: `import harness` alone does not import torch."""
    if name in __all__:
        return getattr(importlib.import_module("harness.execution.run_suite"), name)
    raise AttributeError(f"module 'harness' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
