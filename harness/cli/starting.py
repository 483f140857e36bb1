"""The commands for those who write a suite, a head or a backbone: `harness new` and `check`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from harness.cli.options import Data, argument, console, option, say, warn
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.plan.reader import FOLDER
from harness.printable import counted
from harness.report import screen

if TYPE_CHECKING:
    from harness.conformance import Summary


class StarterKind(StrEnum):
    suite = "suite"
    head = "head"
    backbone = "backbone"


def new(
    kind: Annotated[StarterKind, argument("What to begin.")],
    name: Annotated[str, argument("Its name, which is also that of the file.", metavar="NAME")],
    text: Annotated[
        Path | None, option("The text of a suite, a file or folder; without it, the novel in the package.")
    ] = None,
    model: Annotated[Path | None, option("The folder of a pretrained model for a suite; it stays frozen.")] = None,
    heads: Annotated[str, option("The heads of a suite, beside its controls.", metavar="NAME[,...]")] = "mos",
    minutes: Annotated[float, option("How long the suite may take on this machine.", min=1)] = 20,
    data: Data = DEFAULT_DATA,
) -> None:
    """Write a file to start from: a head or backbone that passes its checks, or a suite that ends in a verdict.

    A suite is written to ./suites, a head or backbone to heads/ or backbones/ of this project. No file is replaced.
    For a suite, training steps are timed for some seconds. Where the minutes are too few for all of the text, its
    first part is written to ./texts.
    """
    if kind is not StarterKind.suite:
        from harness.starters import templates

        if text or model:
            raise ExecutionError(f"harness new {kind}: --text and --model are of a suite")
        say(f"{kind.value} {name}: {templates.write(kind.value, name)}")
        say(f"next: harness check {name}, then name it in a suite: - {name}")
        return
    from harness.machine.environment import resolve_device
    from harness.starters import new_suite

    wanted = tuple(filter(None, map(str.strip, heads.split(","))))
    wish = new_suite.Wish(name=name, text=text, model=model, heads=wanted, minutes=minutes)
    place, command = new_suite.write(wish, data=data, device=resolve_device("auto"), warn=warn)
    say(f"suite {name}: {place}")
    say(f"next: {command}")
    if not (FOLDER / "schema.json").exists():
        say(f"editors complete its keys with the schema: harness schema > {FOLDER}/schema.json")


def check(
    name: Annotated[str | None, argument("The name of a head or a backbone; plug-ins too.")] = None,
    given: Annotated[list[str], option("The value of a parameter. Repeatable.", "--set", metavar="PARAM=VALUE")] = [],  # noqa: B006
    every_head: Annotated[bool, option("Check every head, and show its worst errors and the time.", "--all")] = False,
) -> None:
    """Check one head or backbone, or every head, with several values of its parameters."""
    from harness.conformance import conformance
    from harness.plan.reader import assignment
    from harness.registry import HEADS

    if every_head == (name is not None) or (every_head and given):
        raise ExecutionError("harness check: expected the name of a head or backbone, or --all alone")
    if every_head:
        raise typer.Exit(_check_all(HEADS.names()))
    kind, outcomes = conformance(name, dict(map(assignment, given)))
    for outcome in outcomes:
        say(f"{'ok  ' if outcome.ok else 'FAIL'}  {outcome}")
        if outcome.not_run:
            others = "; no other variant was tried" if outcome.ends else ""
            left = counted(outcome.not_run, "later check")
            say(f"      not run: {left} of this variant, which this failure explains{others}")
    failed = sum(not outcome.ok for outcome in outcomes)
    say(f"{kind} {name}: {len(outcomes) - failed} of {counted(len(outcomes), 'check')} passed")
    raise typer.Exit(1 if failed else 0)


def _check_all(names: list[str]) -> int:
    """Print a row for each component. Returns 1 when a check fails, else 0."""
    from harness.conformance import summary

    summaries = []
    for name in names:
        summaries.append(summary(name))
        for failure in summaries[-1].failures:
            say(f"FAIL  {name}: {failure}")
    console.print(_summaries(summaries))
    return 1 if any(each.failures for each in summaries) else 0


def _summaries(rows: "list[Summary]") -> Table:
    """A line for each checked component: its worst error of each check that measures one, and the time it took."""
    measured = list(dict.fromkeys(check for row in rows for check in row.worst))
    cells = []
    for row in rows:
        errors = [f"{row.worst[check]:.0e}" if check in row.worst else screen.NOTHING for check in measured]
        succeeded = f"{row.checks - len(row.failures)} of {row.checks}" if row.checks else "none"
        succeeded += f", {row.not_run} not run" if row.not_run else ""
        cells.append((row.name, str(row.variants), succeeded, *errors, f"{row.seconds:.1f}"))
    names = ("name", "variants", "passed", *(f"worst error: {check}" for check in measured), "seconds")
    return screen.grid(names, cells, right=names[1:])
