"""The command that looks at this machine: `harness doctor`."""

from typing import Annotated

import typer

from harness.cli.options import RESULTS, Data, Results, errors, option, say
from harness.corpora.download import DEFAULT_DATA


def doctor(
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    again: Annotated[bool, option("Repeat the measurements that are kept for this machine.", "--again")] = False,
    gpu: Annotated[
        bool, option("Check the code for GPUs on small batches, as each trial checks it on its own.", "--gpu")
    ] = False,
) -> None:
    """Check versions, folders, disk and Ray, and describe the machine and its matrix products.

    Exit code 2, with a sentence for each problem, when something prevents `harness run` from working, or when a part
    for GPUs is wrong.
    """
    from harness.execution.doctor import examine

    found = examine(results, data, again=again, gpu=gpu)
    for name, value in found.values.items():
        say(f"{name + ':':16} {value}")
    for note in found.notes:
        say(f"note: {note}")
    for problem in found.problems:
        errors.print(problem)
    raise typer.Exit(2 if found.problems else 0)
