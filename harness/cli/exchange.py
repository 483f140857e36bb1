"""`harness export` and `import`: records from machine to machine."""

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import RESULTS, Results, console, errors
from harness.exchange import exporter, importer
from harness.records import timings, token_nll


def export(
    file: Annotated[Path, typer.Argument(help="The file to write, e.g. records.zip.")],
    suite: Annotated[list[str], typer.Option("--suite", metavar="NAME", help="That suite only. Repeatable.")] = [],  # noqa: B006
    results: Results = RESULTS,
    no_token_nll: Annotated[
        bool, typer.Option("--no-token-nll", help="Without the scores of test tokens, the largest part.")
    ] = False,
) -> None:
    """Write finished trials' records, timings and scores of tokens into one file for `harness import`. No weights."""
    written = exporter.export_records(results, file, suites=tuple(suite), token_nll=not no_token_nll, warn=_warn)
    beside = [
        f"{written.beside[name]} {what}"
        for name, what in {timings.FILE_NAME: "timings", token_nll.FILE_NAME: "scores of tokens"}.items()
        if name in written.beside
    ]
    told = f"{written.trials} records of {written.suites} suites, {', '.join(beside)}: {file}"
    console.print(told, highlight=False, markup=False, soft_wrap=True)


def import_records(
    file: Annotated[Path, typer.Argument(help="What `harness export` wrote.")],
    results: Results = RESULTS,
    replace: Annotated[
        bool, typer.Option("--replace", help="Set aside other records of the same trials, instead of refusing.")
    ] = False,
) -> None:
    """Take in the records of a file: all of it is checked first, nothing in it is executed. Equal records are left."""
    taken = importer.import_records(file, results, replacing=replace)
    told = f"{taken.new} new records, {taken.replaced} replaced, {taken.known} known already"
    console.print(f"{told}: {results / 'runs'}", highlight=False, markup=False, soft_wrap=True)
    for sentence in taken.differing:
        _warn(f"{sentence}; the leaderboard leaves it out")
    if taken.unverified_ids:
        _warn(
            f"the ids of {taken.unverified_ids} records cannot be computed here: "
            "of texts in files, plug-ins, other versions"
        )
    for warning in taken.warnings:
        _warn(warning)
    if taken.uncertified:
        _warn(f"{taken.uncertified} of these records are not certified: they were made before records had certificates")

    if taken.other_code:
        _warn(
            f"made by other code of a head, backbone or corpus than is here: {taken.other_code} of these records; "
            "`harness plan SUITE` shows them as outdated"
        )


def _warn(sentence: str) -> None:
    errors.print(f"warning: {sentence}")
