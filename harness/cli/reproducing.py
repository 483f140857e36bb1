"""The command that trains published numbers again: `harness reproduce`."""

from typing import Annotated

import typer

from harness.cli.options import RESULTS, Data, Results, console, errors, interruptible, option
from harness.cli.run import with_run_options
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.execution.executors import RunOptions


@with_run_options
def reproduce(
    everything: Annotated[bool, option("Run the long suites, too: hours on several cores.", "--all")] = False,
    no_run: Annotated[bool, option("Run nothing: write the table from the records.", "--no-run")] = False,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    *,
    options: RunOptions,
) -> None:
    """Train published numbers that have a tolerance again (suites/ground_truth_*.yaml), and say which are reproduced.

    Without --all only suites of at most two hours on one core are run. What is finished is not trained again.
    """
    from harness.board import ground_truths
    from harness.execution.live import Reporter
    from harness.plan.reader import folders
    from harness.plan.specs import GROUND_TRUTH

    if everything and no_run:
        raise ExecutionError("--all runs every suite and --no-run runs none: use only one of the two")
    which = "none" if no_run else "all" if everything else "short"
    reporter = Reporter(console, errors)
    with interruptible():
        folder = next(each for each in folders() if any(each.glob(f"{GROUND_TRUTH}_*.yaml")))  # ours has some
        yes = ground_truths.reproduce(folder, which, results=results, data=data, options=options, reporter=reporter)
    raise typer.Exit(0 if yes and not reporter.problems else 1)
