"""`harness runs`: what has been run, and what it took."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from harness.cli import screen
from harness.cli.options import RESULTS, Json, Results, console, errors
from harness.errors import ExecutionError
from harness.registry import nearest
from harness.report import history


def runs(
    suite: Annotated[str | None, typer.Argument(help="A suite's name: its trials, one by one.")] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """What the results folder holds, suite by suite, and the time it took; from records, suite files may be gone."""
    known = history.suites(results)
    if suite is not None and suite not in known:
        others = f"{nearest(suite, known)} (there are: {', '.join(known)})" if known else ""
        raise ExecutionError(f"{results / 'runs'} holds no suite '{suite}'{others}")
    if suite is not None:
        rows = history.of_trials(results, suite, _warn)
        content, shown = {"suite": suite, "trials": [asdict(row) for row in rows]}, screen.trials_spent(rows)
    else:
        rows = [history.of_suite(results, name, _warn) for name in known]
        content, shown = {"suites": [asdict(row) for row in rows]}, screen.suites_spent(rows)
    if as_json:
        print(json.dumps(content, indent=1))
    elif rows:
        console.print(shown)
    else:
        console.print(f"{results / 'runs'} holds no records: run a suite first", highlight=False, soft_wrap=True)


def _warn(sentence: str) -> None:
    errors.print(f"warning: {sentence}")
