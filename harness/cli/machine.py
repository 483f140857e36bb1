"""`harness doctor`: check whether this machine can run trials, and describe it."""

from typing import Annotated

import typer

from harness.cli.options import RESULTS, Data, Results, errors, say
from harness.corpora.download import DEFAULT_DATA


def doctor(
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    again: Annotated[
        bool, typer.Option("--again", help="Repeat the measurements that are kept for this machine.")
    ] = False,
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Check the code for GPUs on small batches, as each trial checks it on its own."),
    ] = False,
) -> None:
    """Check versions, folders, memory, MLflow and Ray, and describe the machine and its matrix products.

    Exit code 2, with a sentence for each problem, when something prevents `harness run` from working.
    """
    from harness.execution import doctor as checks
    from harness.execution import machine_facts

    findings = checks.examine(results, data)
    facts = machine_facts.describe(again=again) | {finding.name: finding.value for finding in findings}
    wrong = machine_facts.gpu_faults() if gpu else ()
    if gpu:
        facts["GPU code"] = f"{len(wrong)} parts are wrong" if wrong else "right, or there is no GPU"
    for name, value in facts.items():
        say(f"{name + ':':16} {value}")
    for note in [*wrong, *(note for finding in findings for note in finding.notes)]:
        say(f"note: {note}")
    problems = [problem for finding in findings for problem in finding.problems]
    for problem in problems:
        errors.print(problem)
    raise typer.Exit(2 if problems else 0)
