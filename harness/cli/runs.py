"""`harness runs`: what has been run, how long it took, how large it is, and where it is."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from harness.cli import history_tables
from harness.cli.options import RESULTS, Json, Results, console, say, warn
from harness.errors import ExecutionError, nearest
from harness.plan.reader import suite_name
from harness.printable import counted
from harness.report import history


def runs(
    suite: Annotated[
        str | None,
        typer.Argument(metavar="SUITE", help="The name of a suite, or its file: show its trials one by one."),
    ] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """List the suites in the results folder, the time they took and their size. Only records are read, no suite files.

    Nothing is removed here: a person removes folders that are not needed any more.
    """
    suite = None if suite is None else suite_name(suite)
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
        say(f"folder: {results / 'runs' / (suite or '<suite>')}")
        for place, count in history.other_source(results, suite).items() if suite is not None else ():
            say(f"{counted(count, 'record')} by other source of {place}, which behaves alike")
    else:
        say(f"{results / 'runs'} holds no records: run a suite first")
