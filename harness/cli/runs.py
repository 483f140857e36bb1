"""`harness runs`: what has been run, and how long it took."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from harness.cli import screen
from harness.cli.options import RESULTS, Json, Results, console, say, warn
from harness.errors import ExecutionError, nearest
from harness.report import history


def runs(
    suite: Annotated[str | None, typer.Argument(help="The name of a suite: show its trials one by one.")] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """List the suites in the results folder and the time they took. Only records are read, no suite files."""
    known = history.suites(results)
    if suite is not None and suite not in known:
        others = f"{nearest(suite, known)} (there are: {', '.join(known)})" if known else ""
        raise ExecutionError(f"{results / 'runs'} holds no suite '{suite}'{others}")
    if suite is not None:
        rows = history.of_trials(results, suite, warn)
        content, shown = {"suite": suite, "trials": [asdict(row) for row in rows]}, screen.history_of_trials(rows)
    else:
        rows = [history.of_suite(results, name, warn) for name in known]
        content, shown = {"suites": [asdict(row) for row in rows]}, screen.history_of_suites(rows)
    if as_json:
        print(json.dumps(content, indent=1))
    elif rows:
        console.print(shown)
    else:
        say(f"{results / 'runs'} holds no records: run a suite first")
