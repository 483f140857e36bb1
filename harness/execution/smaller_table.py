"""Refuse to train for a table that would not be written, because the one that is there has more finished trials."""

from harness.execution.stage import Stage
from harness.plan.loaded_suite import Suite, possible_trials
from harness.plan.selection import select
from harness.records import choices, store
from harness.report import outputs
from harness.report.outputs import Trials
from harness.report.table import suite_table

UNDONE = "nothing was trained; --results names another folder"
FINISHED = ("ok", "invalid")  # as of harness.report.outputs.Trials


def refuse(run: Stage) -> None:
    """Raise if trials are to be trained, and the table would not be replaced although all of them succeed.

    Raises: FewerTrialsError.
    """
    if run.options.overwrite:
        return
    suite = choices.completed(run.suite, run.results, run.reporter.warn)
    rows = _rows(suite, any_point=run.options.force or run.options.retry_failed)
    chosen = {trial.id for trial in select(possible_trials(suite), tuple(run.options.only))}
    places = suite_table.places(suite, run.results)
    if outputs.why_kept(places, _most(rows, chosen)) is None:
        return  # whatever is finished already, so no record needs to be read
    tuning = {trial.id for row in suite.tuning.rows for trial in row.tuning_trials} if suite.tuning else set()
    trials = tuning.union(*(ids for points in rows for ids in points))
    records, _ = store.load_all(run.runs, sorted(trials))
    finished = {trial for trial, record in records.items() if record.status in FINISHED}
    finished |= {  # trained again
        trial for trial in trials if (store.folder(run.runs, trial) / store.PREVIOUS).exists()
    }
    if run.options.force or (trials & chosen) - finished:
        outputs.refuse_fewer(places, _most(rows, chosen | finished), UNDONE)


def _most(rows: list[list[set[str]]], finished: set[str]) -> Trials:
    """As many finished trials as the table may have when these trials are finished."""
    counts = [max(len(ids & finished) for ids in points) for points in rows]
    return Trials(sum(counts), sum(max(map(len, points)) for points in rows))


def _rows(suite: Suite, *, any_point: bool) -> list[list[set[str]]]:
    """The ids of the trials of the table: of each tuned row, those at each point that may be its chosen one after the
    run; of all others, together.

    Args:
        any_point: tuning trials that have a record may be trained again, so that another point is chosen.
    """
    if suite.tuning is None:
        return [[{trial.id for trial in suite.trials}]]
    rows = [[{trial.id for trial in suite.trials if trial.is_ngram}]]
    for index, row in enumerate(suite.tuning.rows):
        chosen = {trial.id for trial in suite.tuning.of_table(index)}
        points = [{trial.id for trial in each.finals} for each in row.candidates]
        rows.append(points if any_point or not chosen else [chosen])
    return rows
