"""`harness run`: train what a suite still lacks."""

import shlex
from dataclasses import replace
from typing import Annotated

import typer

from harness import plan as planning
from harness.cli import screen
from harness.cli.options import (
    RESULTS,
    Data,
    Only,
    Results,
    Set,
    SuitePath,
    console,
    errors,
    interruptible,
    say,
)
from harness.cli.run_options import with_run_options
from harness.corpora.download import DEFAULT_DATA
from harness.execution.live import Reporter
from harness.execution.options import RunOptions
from harness.execution.run_suite import all_ok, run_suite
from harness.execution.timed import dry_run
from harness.plan.reader import results_option


@with_run_options
def run(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006 - typer copies it
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    *,
    options: RunOptions,
    shared: Annotated[
        bool, typer.Option("--shared", help="Other programs use this machine: mark the times as shared.")
    ] = False,
    timing: Annotated[
        bool | None,
        typer.Option(
            "--timing/--no-timing",
            help="After training, time one model of each row alone: again, or not. Default: as the suite says, once.",
            show_default=False,
        ),
    ] = None,
    dry: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Train and evaluate one batch of every row in this process, and write nothing to the results folder.",
        ),
    ] = False,
) -> None:
    """Train the trials of a suite that have no record yet, and write its table."""
    options = replace(options, overrides=tuple(overrides), only=tuple(only), shared=shared, timing=timing)
    reporter = Reporter(console, errors)
    if dry:
        read = planning.load(suite, tuple(overrides))
        raise typer.Exit(0 if dry_run(read, data=data, options=options, reporter=reporter) else 1)
    with interruptible():
        found = run_suite(suite, results=results, data=data, options=options, reporter=reporter)
    where, program = results_option(results), screen.command()
    changes = [part for change in overrides for part in ("--set", change)]
    say(f"plots and page: {program} report {shlex.join([str(suite), *changes, *where])}")
    if options.tracking:
        say(f"MLflow UI: {program} ui {shlex.join([found.suite.name, *where])}")
    say(f"a head of your own: {program} new head NAME")
    raise typer.Exit(0 if all_ok(found, options.only) and not reporter.problems else 1)
