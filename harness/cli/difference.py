"""`harness diff`: compare two trials, or two heads of a suite."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from harness import plan as planning
from harness.cli import screen
from harness.cli.options import RESULTS, Data, Json, Only, Results, Set, console, warn
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.plan.selection import chosen_trials
from harness.report import study
from harness.report.diff import difference, of_heads, of_trials

NAMED = "a trial's id or its first digits; with --suite, a head by its name or as the table shows it."


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=f"The first one: {NAMED}")],
    b: Annotated[str, typer.Argument(metavar="B", help="The second one, which is compared with A.")],
    suite: Annotated[
        Path | None,
        typer.Option("--suite", metavar="SUITE", help="Compare heads of this suite, seed by seed: its file or name."),
    ] = None,
    overrides: Set = [],  # noqa: B006 - typer copies it
    only: Only = [],  # noqa: B006
    top: Annotated[int, typer.Option(min=0, help="How many contexts of each kind are shown.")] = 10,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show what differs: settings, metrics with intervals, and the test words on which they differ most."""
    if suite is None:
        if overrides or only:
            raise ExecutionError("--set and --only select trials of a suite: name the suite with --suite")
        compared = [("", *of_trials(results, a, b))]
    else:
        found = study.load(planning.load(suite, tuple(overrides)), results, warn=warn)
        chosen = {trial.id for trial in chosen_trials(found.suite, tuple(only))}
        rows = [row for row in found.rows if chosen & {trial.id for trial in row.trials}]
        compared = of_heads(rows, found.evidence, a, b)
    differences = [difference(one, other, data, top=top, within=within) for within, one, other in compared]
    if as_json:
        content = [asdict(each, dict_factory=_without_nan) for each in differences]
        print(json.dumps({"differences": content}, indent=1, allow_nan=False))
        return
    for each in differences:
        for part in screen.differences(each):
            console.print(part, soft_wrap=False)


def _without_nan(items: list[tuple[str, object]]) -> dict[str, object]:
    """null for a standard error that a single block cannot give."""
    return {key: None if value != value else value for key, value in items}
