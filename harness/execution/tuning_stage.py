"""The first stage of a suite with `tune`: run the tuning trials, and store the point that is chosen for each row."""

from dataclasses import replace

from harness.execution.driver import run_trials
from harness.execution.stage import Stage, pending
from harness.plan.loaded_suite import first_stage
from harness.plan.selection import chosen_rows
from harness.printable import counted
from harness.records import choices
from harness.records.record import TrialRecord
from harness.tracking.safe_tracker import SafeTracker


def tune(table: Stage, tracking: SafeTracker) -> bool:
    """Run the tuning trials without a record, of the rows that the options select, and store the choices.

    A choice that is stored is kept unless tuning trials of its row were run now.

    Args:
        table: the second stage.
    Returns: whether the second stage may follow: not if --fail-fast has ended this one.
    Raises: as run_trials does; KeyboardInterrupt.
    """
    rows = chosen_rows(table.suite, table.options.only)
    stage = replace(table, suite=first_stage(table.suite), trials=first_stage(table.suite, rows).trials, tuning=True)
    found = pending(stage, records := choices.tuning_records(stage.suite, stage.results, stage.reporter.warn))
    if found.todo:
        stage.reporter.say(
            f"tuning: {len(found.todo)} of {counted(len(stage.trials), 'trial')} to run, then the trials of the table"
        )
        view = stage.reporter.progress(found.todo)
        records |= run_trials(stage.execution(found.todo, fresh=stage.options.force), view, tracking)
        stage.reporter.totals(view)
    if failed := sum(records[spec.id].status not in choices.EXPECTED for spec in stage.trials if spec.id in records):
        stage.reporter.say(f"failed: {failed} of the tuning trials; --retry-failed runs them again")
    _store(stage, [table.suite.tuning.rows[row] for row in rows], records, {spec.id for spec in found.todo})
    return not stage.options.fail_fast or all(spec.id in records for spec in stage.trials)


def _store(stage: Stage, rows: list, records: dict[str, TrialRecord], trained: set[str]) -> None:
    kept = choices.readable(stage.runs, stage.reporter.warn)
    made = [
        now
        for row in rows
        if (now := choices.of_records(row, records)) is not None
        and (choices.stored(kept, row, stage.reporter.warn) is None or not trained.isdisjoint(now.valid_ppl))
    ]
    if made:
        choices.save(stage.runs, made)
