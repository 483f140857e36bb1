"""`harness check`: whether components work as components must."""

from typing import Annotated

import typer

from harness.cli import screen
from harness.cli.options import console, say
from harness.conformance import conformance, summary
from harness.errors import ExecutionError
from harness.plan.reader import assignment
from harness.printable import counted
from harness.registry import HEADS


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
            others = "; no other variant was tried" if outcome.ends else ""
            left = counted(outcome.not_run, "later check")
            say(f"      not run: {left} of this variant, which this failure explains{others}")
    failed = sum(not outcome.ok for outcome in outcomes)
    say(f"{kind} {name}: {len(outcomes) - failed} of {counted(len(outcomes), 'check')} passed")
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
