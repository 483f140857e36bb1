"""The command that lists what was run: `harness runs`."""

import json
from typing import Annotated, Any

from rich.filesize import decimal

from harness.cli.options import RESULTS, Json, Results, argument, console, say, warn
from harness.errors import ExecutionError, nearest
from harness.plan.reader import suite_name
from harness.records.plausible import moment
from harness.report import screen


def runs(
    suite: Annotated[
        str | None, argument("The name of a suite, or its file: show its trials one by one.", metavar="SUITE")
    ] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """List the suites in the results folder, the time they took and their size. Only records are read.

    Nothing is removed here: a person removes folders that are not needed any more.
    """
    from harness.report import history

    suite = None if suite is None else suite_name(suite)
    known = history.suites(results)
    if suite is not None and suite not in known:
        others = f"{nearest(suite, known)} (there are: {', '.join(known)})" if known else ""
        raise ExecutionError(f"{results / 'runs'} holds no suite '{suite}'{others}")
    trials = history.trials(results, known if suite is None else [suite], warn)
    found = history.by_suite(trials) if suite is None else trials.drop(columns="suite")
    rows = json.loads(found.convert_dtypes().to_json(orient="records", double_precision=15))  # what is missing is null
    if as_json:
        print(json.dumps({"suites": rows} if suite is None else {"suite": suite, "trials": rows}, indent=1))
    elif rows:
        console.print(*_listed(rows), sep="\n", highlight=False)
        say(f"folder: {results / 'runs' / (suite or '<suite>')}")
    else:
        say(f"{results / 'runs'} holds no records: run a suite first")


FORMS = {  # of the values in a list of suites or trials: column -> how it is written
    "trials": lambda counts: ", ".join(f"{number} {status}" for status, number in counts.items()),
    "device_minutes": screen.span,
    "wall_minutes": screen.span,
    "finished": lambda text: f"{moment(text):%Y-%m-%d %H:%M}",
    "bytes": decimal,
    "devices": ", ".join,
    "test_ppl": "{:.2f}".format,
    "minutes": "{:.2f}".format,
}
KEPT = ("suite", "trials", "device_minutes", "wall_minutes", "id", "head", "seed", "status", "test_ppl", "minutes")
UNLISTED = ("workers", "started")  # columns of --json alone
RIGHT = ("device_minutes", "wall_minutes", "bytes", "seed", "test_ppl", "minutes")


def _listed(rows: list[dict[str, Any]]) -> screen.Shown:
    """Suites or trials, a line each; on a terminal the columns that have room."""
    columns = [name for name in rows[0] if name not in UNLISTED]
    cells = []
    for row in rows:
        cells.append([screen.NOTHING if row[name] is None else FORMS.get(name, str)(row[name]) for name in columns])
    width = console.width if console.is_terminal else None
    yield from screen.table(columns, cells, keep=KEPT, right=RIGHT, width=width)
