"""The options of `harness run`, and where its results go."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.execution import EXECUTORS
from harness.execution.executors import LOCAL
from harness.plan.reader import results_option


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `harness run`.

    Args:
        overrides: changes of the suite as of --set, for example ('train.epochs=2',).
        only: conditions as of --only, for example ('head=mos,seed=1',); () runs all trials.
        executor: 'ray' runs several trials at the same time, 'inline' one after the other in this process.
        address: 'local', or the address of a Ray cluster.
        device: 'auto' uses a GPU if there is one.
        cpus_per_trial: CPU cores and torch threads of a trial; None: as the suite says.
        gpus_per_trial: GPUs of a trial, or a share of one; None: as the suite says.
        retry_failed: run failed trials again, and those that could not be certified.
        force: run finished trials again.
        keep: use finished trials although their code has changed since.
        shared: other programs use this machine, so the times are marked as shared.
        fail_fast: stop at the first trial that fails.
        tracking: write to MLflow.
        timing: True: time the rows again; False: do not time them; None: as the suite says, once.
        overwrite: also replace a table that was made of more finished trials.
    """

    overrides: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    executor: str = "ray"
    address: str = LOCAL
    device: Literal["auto", "cpu", "cuda"] = "auto"
    cpus_per_trial: int | None = None
    gpus_per_trial: float | None = None
    retry_failed: bool = False
    force: bool = False
    keep: bool = False
    shared: bool = False
    fail_fast: bool = False
    tracking: bool = True
    timing: bool | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise ExecutionError(f"there is no executor '{self.executor}'; there are: {', '.join(EXECUTORS)}")
        if self.force and self.keep:
            raise ExecutionError("--force trains finished trials again and --keep keeps them: use only one of the two")


def repeated(options: RunOptions, results: Path, data: Path) -> list[str]:
    """The options of a command that runs trials again in the same way: in these folders, on the same resources.

    Options that select trials or say what becomes of finished ones are not among them.
    """
    usual = RunOptions()
    given = []
    for name in ("executor", "address", "device", "cpus_per_trial", "gpus_per_trial"):
        if (value := getattr(options, name)) != getattr(usual, name):
            given += [f"--{name.replace('_', '-')}", str(value)]
    given += [] if options.tracking else ["--no-tracking"]
    given += ["--shared"] if options.shared else []
    return [*given, *results_option(results), *([] if data == DEFAULT_DATA else ["--data", str(data)])]
