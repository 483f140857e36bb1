"""What is added to the core. An extension may be deleted, with all of its modules, and the rest still works.

The core imports no extension, and no extension imports another. What one adds is asked for by name: its commands by
`harness/cli/commands.py`, other objects by `provided`.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

EXTENSIONS = {  # name -> its packages and modules, which go together
    "board": ("harness.board", "harness.cli.board", "harness.cli.reproducing"),  # results of several suites
    "conformance": ("harness.cli.starting", "harness.conformance", "harness.starters"),
    "diagnostics": (
        "harness.cli.models",
        "harness.diagnostics",
        "harness.experiments",
        "harness.report.diagnosed",
    ),
    "tracking": ("harness.cli.tracking", "harness.tracking"),
}


def is_there(module: str) -> bool:
    """Return whether a module is installed. It is not imported."""
    return find_spec(module) is not None


def provided(place: str, otherwise: Any) -> Any:
    """Return what an extension adds, given as 'module:name'; `otherwise` where the extension is not there."""
    module, _, name = place.partition(":")
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # the package that has the module is gone, too
        found = None
    return otherwise if found is None else getattr(import_module(module), name)
