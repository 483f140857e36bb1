"""What is added to the core. An extension may be deleted, with all of its modules, and the rest still works.

The core imports no extension, and no extension imports another. What one adds is asked for by name: its commands by
`harness/cli/commands.py`, its backbones by the registry, other objects by `provided` and `needed`. The keys of suites
and the metrics of records are the core's, so that a record means the same with and without an extension.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from harness.errors import ExecutionError

EXTENSIONS = {  # name -> its packages and modules, which go together
    "awd": ("harness.backbones.awd_lstm", "harness.training.dynamic_evaluation"),
    "board": ("harness.board", "harness.cli.board", "harness.cli.reproducing"),  # results of several suites
    "conformance": ("harness.cli.starting", "harness.conformance", "harness.starters"),
    "diagnostics": ("harness.cli.models", "harness.diagnostics", "harness.experiments"),
    "gpu": ("harness.execution.ray.worker_group", "harness.gpu"),
    "integrity": ("harness.cli.records", "harness.exchange", "harness.integrity", "harness.verification"),
    "ladder": ("harness.ladder",),
    "pretrained": ("harness.backbones.hf", "harness.pretrained"),
    "submissions": ("harness.cli.submitting", "harness.submissions"),
    "tracking": ("harness.cli.tracking", "harness.tracking"),
}
KEYS = {  # section and key of a suite -> the module without which it keeps its default
    ("measure", "dynamic"): "harness.training.dynamic_evaluation",
    ("train", "data_parallel"): "harness.gpu.data_parallel",
}


def is_there(module: str) -> bool:
    """Return whether a module is installed. It is not imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that has the module is gone, too
        return False


def lack_of(module: str) -> str:
    """Return why something cannot be had, for a message: its module is of an extension that was deleted. '' where the
    module is there, or is of no extension.
    """
    for name, parts in EXTENSIONS.items():
        for part in parts:
            if f"{module}.".startswith(f"{part}.") and not is_there(part):
                return f"belongs to the extension '{name}', which is not installed; leave it out, or install it"
    return ""


def provided(place: str, otherwise: Any) -> Any:
    """Return what an extension adds, given as 'module:name'; `otherwise` where the extension is not there."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name) if is_there(module) else otherwise


def needed(place: str, what: str, error: type[Exception] = ExecutionError) -> Any:
    """Return what an extension adds, given as 'module:name', where nothing can take its place.

    Args:
        what: was asked for, for the message.
        error: is raised where the extension is not there.
    """
    found = provided(place, None)
    if found is None:
        raise error(f"{what} {lack_of(place.partition(':')[0])}")
    return found
