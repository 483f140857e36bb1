"""The options that `harness run` and `harness reproduce` share: what they are called, and what they become."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from harness.cli.options import (
    Address,
    CpusPerTrial,
    Device,
    Executor,
    FailFast,
    Force,
    GpusPerTrial,
    Keep,
    NoTracking,
    Overwrite,
    RetryFailed,
    RunDevice,
    RunExecutor,
)
from harness.execution.options import RunOptions


def run_options(  # one parameter for each option
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
) -> RunOptions:
    """The options as the command line gives them, as functions take them."""
    return RunOptions(
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
