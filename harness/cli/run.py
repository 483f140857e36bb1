"""`harness run` and `reproduce`: train what a suite, or the published numbers, still lack."""

import functools
import inspect
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from harness import plan as planning
from harness.cli.commands import COMMANDS
from harness.cli.options import (
    RESULTS,
    Data,
    Device,
    Executor,
    Only,
    Results,
    RunDevice,
    Seeds,
    Set,
    SuitePath,
    changes,
    console,
    errors,
    interruptible,
    option,
    say,
)
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.execution.executors import RunOptions


def run_options(  # one parameter for each option
    executor: Annotated[
        Executor, option("ray: several trials at the same time; inline: one after the other; slurm: each is a job.")
    ] = Executor.ray,
    address: Annotated[str, option("The address of a Ray cluster.")] = "local",
    account: Annotated[str | None, option("SLURM: the account of the jobs.")] = None,
    partition: Annotated[str | None, option("SLURM: the partition of the jobs.")] = None,
    slurm: Annotated[
        str, option("SLURM: more options of sbatch: '--time=4:00:00 --gres=gpu:1'.", metavar="OPTIONS")
    ] = "",
    device: RunDevice = Device.auto,
    gpus_per_trial: Annotated[float | None, option("GPUs for a trial, or a share of one.", min=0)] = None,
    cpus_per_trial: Annotated[
        int | None, option("Number of CPU cores, and of torch threads, of each trial.", min=1)
    ] = None,
    retry_failed: Annotated[bool, option("Run failed trials again, and uncertified ones.", "--retry-failed")] = False,
    force: Annotated[bool, option("Run finished trials again.", "--force")] = False,
    keep: Annotated[bool, option("Use finished trials although their code has changed since.", "--keep")] = False,
    fail_fast: Annotated[bool, option("Stop at the first trial that fails.", "--fail-fast")] = False,
    no_tracking: Annotated[bool, option("Write nothing to MLflow.", "--no-tracking")] = False,
) -> RunOptions:
    """The options that both commands have, as the functions of other packages take them."""
    named = {"account": account, "partition": partition}
    try:
        jobs = [f"--{name}={value}" for name, value in named.items() if value is not None] + shlex.split(slurm)
    except ValueError as cause:
        raise ExecutionError(f"--slurm {slurm}: {cause}; expected options of sbatch, as in a shell") from cause
    return RunOptions(
        executor=executor.value,
        address=address,
        slurm=tuple(jobs),
        device=device.value,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
        retry_failed=retry_failed,
        force=force,
        keep=keep,
        fail_fast=fail_fast,
        tracking=not no_tracking,
    )


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options, in the place of its parameter `options`, which is a RunOptions."""
    shared = inspect.signature(run_options).parameters
    own = inspect.signature(command).parameters.values()

    def called(**given: Any) -> None:
        options = run_options(**{name: given.pop(name) for name in shared})
        command(**given, options=options)

    every = [each for one in own for each in (shared.values() if one.name == "options" else [one])]
    functools.update_wrapper(called, command)
    called.__signature__ = inspect.Signature([each.replace(kind=each.KEYWORD_ONLY) for each in every])
    called.__annotations__ = {each.name: each.annotation for each in every}
    return called


@with_run_options
def run(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006 - typer copies it
    only: Only = [],  # noqa: B006
    seeds: Seeds = None,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    *,
    options: RunOptions,
    shared: Annotated[bool, option("Other programs use this machine: mark the times as shared.", "--shared")] = False,
    timing: Annotated[
        bool | None,
        option(
            "After training, time one model of each row alone: again, or not. Default: as the suite says, once.",
            "--timing/--no-timing",
            show_default=False,
        ),
    ] = None,
    dry: Annotated[
        bool,
        option(
            "Train and evaluate one batch of every row in this process: loss, ms a step, peak memory. Nothing is "
            "written.",
            "--dry-run",
        ),
    ] = False,
) -> None:
    """Train the trials of a suite that have no record yet, and write its table."""
    from harness.execution.live import Reporter
    from harness.execution.run_suite import all_ok, run_suite
    from harness.execution.timed import dry_run
    from harness.plan.reader import results_option

    changed = changes(overrides, seeds)
    options = replace(options, overrides=changed, only=tuple(only), shared=shared, timing=timing)
    reporter = Reporter(console, errors)
    if dry:
        read = planning.load(suite, changed)
        raise typer.Exit(0 if dry_run(read, data=data, options=options, reporter=reporter) else 1)
    with interruptible():
        found = run_suite(suite, results=results, data=data, options=options, reporter=reporter)
    where, program = results_option(results), _program()
    settings = [part for change in changed for part in ("--set", change)]
    say(f"plots and page: {program} report {shlex.join([str(suite), *settings, *where])}")
    if options.tracking and "ui" in COMMANDS:
        say(f"MLflow UI: {program} ui {shlex.join([found.suite.name, *where])}")
    if "new" in COMMANDS:
        say(f"a head of your own: {program} new head NAME")
    raise typer.Exit(0 if all_ok(found, options.only) and not reporter.problems else 1)


def _program() -> str:
    """The command that starts this program: its name, or its path when its environment is not activated."""
    script, here = Path(sys.executable).with_name("harness"), Path.cwd()
    if shutil.which("harness") or not script.exists():
        return "harness"
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))
