"""`harness diff`: two trials, or two heads of a suite, compared."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from harness import plan as planning
from harness.cli import screen
from harness.cli.options import RESULTS, Data, Json, Only, Results, Set, console, errors
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.report import study
from harness.report.diff import pairs
from harness.report.diff.difference import difference

NAMED = "a trial's id or its first digits; with --suite a head, by name or as the table calls it."


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=f"What is compared with: {NAMED}")],
    b: Annotated[str, typer.Argument(metavar="B", help="What is compared, likewise.")],
    suite: Annotated[Path | None, typer.Option("--suite", help="Compare heads of this suite file, by seeds.")] = None,
    overrides: Set = [],  # noqa: B006 - typer copies it
    only: Only = [],  # noqa: B006
    top: Annotated[int, typer.Option(min=0, help="Contexts shown of each kind.")] = 10,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """What differs: settings, metrics with intervals, and the words of the test text on which they differ most."""
    if suite is None:
        if overrides or only:
            raise ExecutionError("--set and --only change and pick what a suite says: name it with --suite")
        found = [("", *pairs.of_trials(results, a, b))]
    else:
        read = planning.load(suite, tuple(overrides))
        chosen = {trial.id for trial in planning.select(read.trials, tuple(only))}
        made = study.load(read, results, warn=errors.print)
        lines = [row for row in made.rows if chosen & {trial.id for trial in row.trials}]
        found = pairs.of_heads(lines, made.evidence, a, b)
    found = [difference(one, other, data, top=top, within=within) for within, one, other in found]
    if as_json:
        told = [asdict(each, dict_factory=_without_nan) for each in found]
        print(json.dumps({"differences": told}, indent=1, allow_nan=False))
        return
    for each in found:
        for part in screen.differences(each):
            console.print(part, soft_wrap=False)


def _without_nan(items: list[tuple[str, object]]) -> dict[str, object]:
    """null for an error that a single block does not tell."""
    return {key: None if value != value else value for key, value in items}
