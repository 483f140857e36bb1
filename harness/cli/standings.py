"""`harness leaderboard`: all suites' records together."""

import json
from typing import Annotated

import typer

from harness.cli.options import RESULTS, Json, Overwrite, Results, console, errors
from harness.errors import ExecutionError
from harness.plan.specs import LEADERBOARD
from harness.registry import nearest
from harness.report.leaderboard import board as board
from harness.report.leaderboard.groups import gather, groups


def leaderboard(
    corpus: Annotated[
        list[str], typer.Option("--corpus", metavar="NAME", help="Only that corpus, on screen. Repeatable.")
    ] = [],  # noqa: B006
    results: Results = RESULTS,
    as_json: Json = False,
    overwrite: Overwrite = False,
) -> None:
    """All suites' finished trials in tables of what compares: same text, counting, evaluation and budget."""
    from harness.report import outputs
    from harness.report.page import document

    finished, unknown, differing = gather(results, lambda sentence: errors.print(f"warning: {sentence}"))
    if not finished:
        raise ExecutionError(f"{results / 'runs'} holds no records to compare: run a suite first, or name the folder")
    found = groups(finished)
    known = sorted({group.corpus.name for group in found})
    for name in corpus:
        if name not in known:
            others = f"{nearest(name, known)} (there are: {', '.join(known)})"
            raise ExecutionError(f"--corpus {name}: no finished trial has that corpus{others}")
    chosen = tuple(group for group in found if not corpus or group.corpus.name in corpus)
    if as_json:
        print(json.dumps({"groups": board.as_json(chosen), "left_out": unknown}, indent=1))
        return
    left_out = {"unknown": unknown, "differing": differing}
    shown = board.render(chosen, **left_out)
    console.print(shown, markup=False, highlight=False, soft_wrap=True)
    tables = document.Section(heading="Like with like", tables=tuple(map(board.table, found)), notes=board.MEANING)
    whole, about = board.render(found, **left_out), {"Trials": str(board.trials(found))}
    files = {
        results / "tables" / board.FILE_NAME: whole.encode(),
        results / "reports" / f"{LEADERBOARD}.html": document.of_tables("Leaderboard", [tables], about).encode(),
    }
    outputs.write(files, overwrite=overwrite)
    console.print(f"leaderboard: {', '.join(map(str, files))}", highlight=False, soft_wrap=True)
