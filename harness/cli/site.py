"""`harness site`: all results as a folder of web pages."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import RESULTS, Results, say, warn
from harness.errors import ExecutionError
from harness.exchange.copying import import_records


def site(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the site.")] = Path("site"),
    results: Results = RESULTS,
    records: Annotated[
        Path | None,
        typer.Option("--records", metavar="DIR", help="Show the exported records in this folder instead: *.zip."),
    ] = None,
    suites: Annotated[Path, typer.Option("--suites", metavar="DIR", help="The folder of the suite files.")] = Path(
        "suites"
    ),
) -> None:
    """Write all results as web pages: suites, leaderboard, plots, data as CSV, and a search by head.

    The folder needs no network and no server: open its index.html, or copy it to any host.
    """
    from harness.report import site

    if records is None:
        files = _files(results, suites)
    else:
        with tempfile.TemporaryDirectory(prefix="harness-site-") as imported:
            _import(records, Path(imported))
            files = _files(Path(imported), suites)
    site.write(files, out)
    say(f"site: {out / 'index.html'} ({len(files)} files, {sum(map(len, files.values())) / 2**20:.1f} MiB)")


def _files(results: Path, suites: Path) -> dict[str, bytes]:
    from harness.report import site  # here: matplotlib, jinja2 and pandas take seconds to import

    return site.files_of(site.studies(results, suites, warn), results, warn)


def _import(records: Path, results: Path) -> None:
    """Import all files of a folder into an empty results folder."""
    found = sorted(records.glob("*.zip"))
    if not found:
        raise ExecutionError(f"--records {records} has no file *.zip; `harness export` writes such files")
    for path in found:
        for sentence in import_records(path, results).warnings:
            warn(f"{path}: {sentence}")
