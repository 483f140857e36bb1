"""`harness export` and `import`: copy records from one machine to another."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import RESULTS, Results, say, warn
from harness.exchange import copying
from harness.plan.reader import suite_name
from harness.printable import counted
from harness.records import sidecars


def export(
    file: Annotated[Path, typer.Argument(help="The file to write, for example records.zip.")],
    suite: Annotated[
        list[str], typer.Option("--suite", metavar="SUITE", help="Only this suite, by its name or file. Repeatable.")
    ] = [],  # noqa: B006
    trial: Annotated[list[str], typer.Option("--trial", metavar="ID", help="Only this trial. Repeatable.")] = [],  # noqa: B006
    results: Results = RESULTS,
    no_token_nll: Annotated[
        bool, typer.Option("--no-token-nll", help="Leave out the scores of test tokens, which are the largest part.")
    ] = False,
) -> None:
    """Write the records, timings, token scores and diagnostics of finished trials into one file, without weights."""
    chosen = {"suites": tuple(map(suite_name, suite)), "trials": tuple(trial)}
    written = copying.export_records(results, file, **chosen, token_nll=not no_token_nll, warn=warn).trials
    number = Counter(name for each in written for name in each.files)
    suites = {each.suite for each in written}
    parts = [f"{counted(len(written), 'record')} of {counted(len(suites), 'suite')}"]
    parts.append(counted(number[sidecars.TIMING.file], "timing"))
    if not no_token_nll:
        parts.append(f"token scores of {counted(number[sidecars.TOKEN_NLL.file], 'trial')}")
    if diagnosed := number[sidecars.DIAGNOSES.file]:
        parts.append(f"diagnostics of {counted(diagnosed, 'trial')}")
    say(f"{', '.join(parts)}: {file}")


def import_records(
    file: Annotated[Path, typer.Argument(help="A file that `harness export` wrote.")],
    results: Results = RESULTS,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace records of the same trials that differ. The replaced ones are kept as backups."
        ),
    ] = False,
) -> None:
    """Copy the records of a file into the results folder. All of it is checked first, and nothing in it is executed."""
    imported = copying.import_records(file, results, replacing=replace)
    new, known = counted(imported.new, "new record"), f"{imported.known} known already"
    say(f"{new}, {imported.replaced} replaced, {known}: {results / 'runs'}")
    for sentence in imported.warnings:
        warn(sentence)
