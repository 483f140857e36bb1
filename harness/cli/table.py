"""`harness table`: the table of a suite, from its records."""

import shlex
from typing import Annotated

import typer

from harness import bundled
from harness import plan as planning
from harness.cli.options import (
    RESULTS,
    Data,
    Only,
    Overwrite,
    Results,
    Set,
    SuitePath,
    console,
    say,
    say_files,
    warn,
)
from harness.corpora.download import DEFAULT_DATA
from harness.execution.live import short_table
from harness.plan.suite_file import Shape
from harness.report import study
from harness.report.suite_table import Form


def table(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    shape: Annotated[
        Shape | None, typer.Option(help="How rows are laid out; another shape than the suite's has its own files.")
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(help="What is printed: by default a summary on a terminal, else md. All three are written."),
    ] = None,
    columns: Annotated[
        str,
        typer.Option(metavar="NAME[,...]", help="Print these columns only: 'test ppl, vs, params'."),
    ] = "",
    wide: Annotated[bool, typer.Option("--wide", help="Print all columns and notes.")] = False,
    compact: Annotated[
        bool, typer.Option("--compact", help="Print a table for one column of a paper: short cells, no intervals.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the table of a suite again from its records. With --only, print those rows only."""
    found = study.load(planning.load(suite, tuple(overrides)), results, warn=warn)
    if not found.records and (files := _committed(found.suite.name)):
        warn(f"{results} has no finished trial of this suite; the repository has some: harness import {files}")
    names = columns.split(",") if columns else []
    if form is None and shape is None and not (names or wide or compact) and console.is_terminal:
        console.print(short_table(found.summary(only), console.width))
    else:
        say(found.table(form or "md", shape, only, names, wide=wide, compact=compact))
    files = found.write_table(overwrite, shape)
    if form in (None, "md"):  # the other forms are for programs, which read only the table
        say_files("table", files)


def _committed(suite: str) -> str:
    """The files with records of a suite that are part of a clone; '' for none."""
    records = bundled("results/showcase") / "records"
    places = [*records.glob(f"{suite}.zip"), *sorted(records.glob(f"{suite}.*.zip"))]
    return shlex.join(map(str, places))
