"""`harness reproduce`: published numbers trained again."""

from typing import Annotated

import typer

from harness.cli.options import (
    RESULTS,
    Address,
    CpusPerTrial,
    Data,
    Device,
    Executor,
    FailFast,
    Force,
    GpusPerTrial,
    Keep,
    NoTracking,
    Overwrite,
    Results,
    RetryFailed,
    RunDevice,
    RunExecutor,
    console,
    errors,
    interruptible,
)
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.execution import ground_truths
from harness.execution.options import RunOptions
from harness.execution.progress.reporter import Reporter
from harness.plan.places import FOLDER


def reproduce(
    everything: Annotated[
        bool, typer.Option("--all", help="Run the long suites, too: hours on several cores.")
    ] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Run nothing: write the table from the records.")] = False,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    executor: RunExecutor = Executor.ray,
    address: Address = "local",
    device: RunDevice = Device.auto,
    gpus_per_trial: GpusPerTrial = None,
    cpus_per_trial: CpusPerTrial = None,
    retry_failed: RetryFailed = False,
    force: Force = False,
    keep: Keep = False,
    fail_fast: FailFast = False,
    no_tracking: NoTracking = False,
    overwrite: Overwrite = False,
) -> None:
    """Train published numbers that have a tolerance again (suites/ground_truth_*.yaml), and say which are reproduced.

    Without --all only suites of at most two hours on one core are run. What is finished is not trained again.
    """
    if everything and no_run:
        raise ExecutionError("--all runs every suite and --no-run runs none: use only one of the two")
    options = RunOptions(
        executor=executor.value,
        address=address,
        device=device.value,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
        retry_failed=retry_failed,
        force=force,
        keep=keep,
        fail_fast=fail_fast,
        tracking=not no_tracking,
        overwrite=overwrite,
    )
    which = "none" if no_run else "all" if everything else "short"
    reporter = Reporter(console, errors)
    with interruptible():
        found = ground_truths.reproduce(FOLDER, which, results=results, data=data, options=options, reporter=reporter)
    raise typer.Exit(0 if found.all_yes and not reporter.problems else 1)
