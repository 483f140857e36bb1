"""`harness runs`: what has been run, how long it took, how large it is; and what of it can be removed."""

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from harness.cli import history_tables, screen
from harness.cli.options import RESULTS, Json, Results, console, say, warn
from harness.errors import ExecutionError, nearest
from harness.plan.places import results_option, suite_name
from harness.printable import counted
from harness.report import history

if TYPE_CHECKING:
    from harness.exchange.unneeded import Unneeded


def runs(
    suite: Annotated[
        str | None,
        typer.Argument(metavar="SUITE", help="The name of a suite, or its file: show its trials one by one."),
    ] = None,
    results: Results = RESULTS,
    as_json: Json = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove what no suite needs any more; its records are exported first.")
    ] = False,
    suite_files: Annotated[
        list[Path],
        typer.Option(
            "--suite", metavar="FILE", help="With --prune: a suite file or folder beside ./suites. Repeatable."
        ),
    ] = [],  # noqa: B006
    yes: Annotated[bool, typer.Option("--yes", help="With --prune: do not ask.")] = False,
) -> None:
    """List the suites in the results folder, the time they took and their size. Only records are read, no suite files.

    With --prune, remove records of trials that no suite file plans, checkpoints of finished trials and temporary files.
    """
    suite = None if suite is None else suite_name(suite)
    if not prune:
        if suite_files or yes:
            raise ExecutionError("harness runs: --suite and --yes belong to --prune")
        _show(suite, results, as_json)
        return
    if as_json:
        raise ExecutionError("harness runs --prune has no --json")
    from harness.exchange import unneeded  # here: with torch, which the list of runs need not wait for

    _prune(results, unneeded.find(results, unneeded.suite_files(suite_files), suite, warn), yes=yes)


def _prune(results: Path, found: "list[Unneeded]", *, yes: bool) -> None:
    """Show what would be removed, ask, and remove it."""
    from harness.exchange import pruning

    if not found:
        say("nothing to prune")
        return
    console.print(*history_tables.unneeded(found), sep="\n", highlight=False)
    if any(each.unplanned for each in found):
        say(f"The records are exported to {results / pruning.FOLDER} first; their weights and logs are not.")
        say("Runs with --set make trials that no suite file plans.")
        say("Tables, pages and plots stay. `run`, `table` and `report` with fewer finished trials need --overwrite.")
    if not (yes or typer.confirm("Remove all this?")):
        raise ExecutionError("nothing was removed")
    done = pruning.prune(results, found, warn)
    for sentence in done.kept:
        warn(sentence)
    for archive in done.archives:
        say(f"exported: {archive}")
        again = shlex.join(["import", str(archive), *results_option(results)])
        say(f"to bring these records back: {screen.command()} {again}")
    say(f"removed: {counted(done.trials, 'trial')}, {decimal(done.bytes)} in all")


def _show(suite: str | None, results: Path, as_json: bool) -> None:
    known = history.suites(results)
    if suite is not None and suite not in known:
        others = f"{nearest(suite, known)} (there are: {', '.join(known)})" if known else ""
        raise ExecutionError(f"{results / 'runs'} holds no suite '{suite}'{others}")
    width = console.width if console.is_terminal else None
    if suite is not None:
        rows = history.of_trials(results, suite, warn)
        content, shown = {"suite": suite, "trials": [asdict(row) for row in rows]}, history_tables.trials(rows, width)
    else:
        rows = [history.of_suite(results, name, warn) for name in known]
        content, shown = {"suites": [asdict(row) for row in rows]}, history_tables.suites(rows, width)
    if as_json:
        print(json.dumps(content, indent=1))
    elif rows:
        console.print(*shown, sep="\n", highlight=False)
        for place, count in history.other_source(results, suite).items() if suite is not None else ():
            say(f"{counted(count, 'record')} by other source of {place}, which behaves alike")
    else:
        say(f"{results / 'runs'} holds no records: run a suite first")
