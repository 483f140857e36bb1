"""`harness list`: which components and suites there are."""

import json
from typing import Annotated, Any

import typer

from harness.cli import screen
from harness.cli.options import Json, console
from harness.errors import BrokenComponent, DuplicateComponent, ExecutionError
from harness.plan.reader import ENDING, FOLDER, folders, name_of

KINDS = ("heads", "backbones", "corpora")


def list_components(
    what: Annotated[str, typer.Argument(help="heads, backbones, corpora or suites.")], as_json: Json = False
) -> None:
    """List heads, backbones, corpora or suites, with the file or plug-in they come from and their parameters."""
    if what == "suites":
        entries = _suites()
    elif what in KINDS:
        entries = _components(what)
    else:
        raise ExecutionError(f"harness list {what}: expected heads, backbones, corpora or suites")
    if as_json:
        print(json.dumps(entries, indent=1))
        return
    console.print(screen.components(entries))


def _suites() -> list[dict[str, Any]]:
    """An entry for each suite that is taken by its name, with the name: those of ./suites, and those of the harness."""
    return [
        {"name": name_of(path), "from": str(path), "kind": kind, "parameters": []}
        for folder in folders()
        for kind in ("yours" if folder == FOLDER and len(folders()) > 1 else "bundled",)
        for path in sorted(folder.glob(f"*{ENDING}"))
    ]


def _components(what: str) -> list[dict[str, Any]]:
    """An entry for each component. That of a component that cannot be used says why."""
    from harness.plan.parameters import parameters  # here: with torch, which a list of suites need not wait for
    from harness.registry import BACKBONES, CORPORA, HEADS

    registry = dict(zip(KINDS, (HEADS, BACKBONES, CORPORA), strict=True))[what]
    entries = []
    for name in registry.names():
        try:
            shown = [str(parameter) for parameter in parameters(registry.get(name)).values()]
        except (BrokenComponent, DuplicateComponent) as error:
            shown = [f"broken: {error}"]
        entries.append({"name": name, "from": registry.origin(name), "parameters": shown})
    return entries
