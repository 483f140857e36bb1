"""`harness list` and `check`: which components exist, and whether they work as components must."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli import screen
from harness.cli.options import Json, console, say
from harness.conformance import conformance, summary
from harness.errors import BrokenComponent, DuplicateComponent, ExecutionError
from harness.plan.parameters import parameters
from harness.plan.reader import assignment
from harness.registry import BACKBONES, CORPORA, HEADS, Registry


def list_components(
    what: Annotated[str, typer.Argument(help="heads, backbones, corpora or suites.")], as_json: Json = False
) -> None:
    """List heads, backbones, corpora or suites, with the file or plug-in they come from and their parameters."""
    registries = {"heads": HEADS, "backbones": BACKBONES, "corpora": CORPORA}
    if what == "suites":
        if not Path("suites").is_dir():
            raise ExecutionError(f"there is no folder suites in {Path.cwd()}")
        entries = [{"name": p.stem, "from": str(p), "parameters": []} for p in sorted(Path("suites").glob("*.yaml"))]
    elif what in registries:
        entries = [_component(registries[what], name) for name in registries[what].names()]
    else:
        raise ExecutionError(f"harness list {what}: expected heads, backbones, corpora or suites")
    if as_json:
        print(json.dumps(entries, indent=1))
        return
    console.print(screen.components(entries))


def check(
    name: Annotated[str | None, typer.Argument(help="The name of a head or a backbone; plug-ins too.")] = None,
    given: Annotated[
        list[str], typer.Option("--set", metavar="PARAM=VALUE", help="The value of a parameter. Repeatable.")
    ] = [],  # noqa: B006
    every_head: Annotated[
        bool, typer.Option("--all", help="Check every head, and show its worst errors and the time.")
    ] = False,
) -> None:
    """Check one head or backbone, or every head, with several values of its parameters."""
    if every_head == (name is not None) or (every_head and given):
        raise ExecutionError("harness check: expected the name of a head or backbone, or --all alone")
    if every_head:
        raise typer.Exit(_check_all(HEADS.names()))
    kind, outcomes = conformance(name, dict(map(assignment, given)))
    for outcome in outcomes:
        verdict = "ok  " if outcome.ok else "FAIL"
        console.print(f"{verdict}  {outcome}", highlight=False, markup=False, soft_wrap=True)
        if outcome.not_run:
            say(f"      {outcome.not_run} later checks were not run: this failure explains them")
    failed = sum(not outcome.ok for outcome in outcomes)
    say(f"{kind} {name}: {len(outcomes) - failed} of {len(outcomes)} checks passed")
    raise typer.Exit(1 if failed else 0)


def _check_all(names: list[str]) -> int:
    """Print a row for each component. Returns 1 when a check fails, else 0."""
    summaries = []
    for name in names:
        summaries.append(summary(name))
        for failure in summaries[-1].failures:
            console.print(f"FAIL  {name}: {failure}", highlight=False, markup=False, soft_wrap=True)
    console.print(screen.summaries(summaries))
    return 1 if any(each.failures for each in summaries) else 0


def _component(registry: Registry, name: str) -> dict[str, Any]:
    """The entry of a component. That of a component that cannot be used says why."""
    try:
        shown = [str(parameter) for parameter in parameters(registry.get(name)).values()]
    except (BrokenComponent, DuplicateComponent) as error:
        shown = [f"broken: {error}"]
    return {"name": name, "from": registry.origin(name), "parameters": shown}
