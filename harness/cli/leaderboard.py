"""`harness leaderboard`: the records of all suites together."""

import json
from typing import Annotated

import typer

from harness.cli.options import RESULTS, Json, Overwrite, Results, console, say, warn
from harness.execution.live import short_table
from harness.report.leaderboard import load


def leaderboard(
    corpus: Annotated[
        list[str], typer.Option("--corpus", metavar="NAME", help="Show only this corpus. Repeatable.")
    ] = [],  # noqa: B006
    results: Results = RESULTS,
    as_json: Json = False,
    overwrite: Overwrite = False,
) -> None:
    """Rank the finished trials of all suites, in groups with the same text, counting, evaluation and budget."""
    found = load(results, warn)
    if as_json:
        print(json.dumps(found.as_json(corpus), indent=1))
        return
    if console.is_terminal:
        for summary in found.summaries(corpus):
            console.print(short_table(summary, console.width), end="\n\n")
    else:
        say(found.text(corpus))
    say(f"leaderboard: {', '.join(map(str, found.write(overwrite=overwrite)))}")
