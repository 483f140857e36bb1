"""Six tiny trials in a folder for a module, and heads that only the workers of Ray find."""

import os

import pytest
from six_trials import place, suite, tasks

__all__ = ["place", "plugin", "suite", "tasks"]


@pytest.fixture(scope="module")
def plugin(place):
    """A function: head's name, its class, the module's text. It makes a plug-in that only workers find."""
    with pytest.MonkeyPatch.context() as patch:

        def make(name: str, cls: str, text: str) -> None:
            about = place / "plugin" / f"{name}_head-1.dist-info"
            about.mkdir(parents=True)
            (place / "plugin" / f"{name}_head.py").write_text(text)
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-head\nVersion: 1\n")
            (about / "entry_points.txt").write_text(f"[harness.heads]\n{name} = {name}_head:{cls}\n")
            patch.setenv("PYTHONPATH", str(place / "plugin"), prepend=os.pathsep)

        yield make
