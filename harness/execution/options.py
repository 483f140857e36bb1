"""The options of `harness run`, and where its results go."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import ExecutionError
from harness.execution.resources import LOCAL

RESULTS = Path("results")


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
        retry_failed: run failed trials again.
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
    executor: Literal["ray", "inline"] = "ray"
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
        if self.force and self.keep:
            raise ExecutionError("--force trains finished trials again and --keep keeps them: use only one of the two")


def results_option(results: Path) -> list[str]:
    """The option that names the results folder in a command; nothing for the default folder."""
    return [] if results == RESULTS else ["--results", str(results)]
