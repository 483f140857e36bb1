"""Compare language-model output heads on equal terms. Start reading at `harness.execution.run_suite`.

import harness

study = harness.run_suite("suites/quickstart.yaml")   # as `harness run`
study = harness.load_study("suites/quickstart.yaml")  # what there is, nothing is trained
study.frame()                                         # one line for each trial, as a pandas DataFrame
print(study.table())

@harness.register_head("cosine")                      # a class of this notebook as a head, with executor="inline"
"""

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.execution.run_suite import RunOptions, load_study, run_suite
    from harness.registry import register_head

__version__ = "0.1.0"
__all__ = ["RunOptions", "load_study", "register_head", "run_suite"]

FOLDER = Path(__file__).parent
if not (FOLDER / "heads").is_dir():  # a clone: heads and backbones lie beside this folder, not in it
    __path__.append(str(FOLDER.parent))

if not os.path.isabs(os.environ.get("HOME", "")):  # without a home many libraries fail; Docker's choice, too, is '/'
    os.environ.pop("HOME", None)
    _home = os.path.expanduser("~")  # of the user's entry, where the user has one
    os.environ["HOME"] = _home if os.path.isabs(_home) else "/"


def bundled(folder: str) -> Path:
    """Return a folder that comes with the harness: 'heads', 'suites', 'published' or 'docs'.

    In an installed wheel it is inside the package, in a clone beside it.
    """
    inside = FOLDER / folder
    return inside if inside.is_dir() else FOLDER.parent / {"published": "results/published"}.get(folder, folder)


def __getattr__(name: str):
    """Import the public functions when they are first used: `import harness` alone does not import torch."""
    if name in __all__:
        module = "harness.registry" if name == "register_head" else "harness.execution.run_suite"
        return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'harness' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
