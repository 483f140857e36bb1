"""Refuse to train for a table that would not be written, because the one that is there has more finished trials."""

from harness.execution.stage import Stage
from harness.plan.loaded_suite import Suite
from harness.plan.selection import select
from harness.plan.two_stages import possible_trials
from harness.records import choices, store
from harness.report import outputs
from harness.report.outputs import Trials
from harness.report.table import suite_table

FINISHED = ("ok", "invalid")  # as of harness.report.outputs.Trials


def refuse(run: Stage) -> None:
    """Raise if trials are to be trained, and the table would not be replaced although all of them succeed.

    Raises: FewerTrialsError.
    """
    if run.options.overwrite:
        return
    suite = choices.completed(run.suite, run.results, run.reporter.warn)
    records, _ = store.load_all(run.runs, [trial.id for trial in suite.trials])
    finished = {trial for trial, record in records.items() if record.status in FINISHED}
    met = {trial.id for trial in select(possible_trials(suite), tuple(run.options.only))}
    planned = {trial.id for trial in suite.trials}
    later = _later(suite)
    to_come = sum(max(len(met & ids) for ids in points) for points in later)
    if run.options.force or to_come or met & planned - finished:
        most = Trials(len(finished | met & planned) + to_come, len(planned) + sum(len(points[0]) for points in later))
        outputs.refuse_fewer(suite_table.places(suite, run.results), most, "nothing was trained")


def _later(suite: Suite) -> list[list[set[str]]]:
    """Of each row for which no point is chosen: the ids of its trials of the table, at each point."""
    tuning = suite.tuning
    rows = [] if tuning is None else [row for index, row in enumerate(tuning.rows) if not tuning.of_table(index)]
    return [[{trial.id for trial in each.finals} for each in row.candidates] for row in rows]
