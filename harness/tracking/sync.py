"""Shows records in MLflow, one way: a suite is an experiment, a trial is a run.

Only the driver writes, and only by `MlflowClient`, MLflow's public client. The client has no transaction for a run, so
a run is written by these calls, in this order:

    create_run       the run, with its tags
    log_batch        parameters and metrics, in as many calls as MLflow's limits require
    set_terminated   the final status
    set_tag          what the run shows: the checksum of the record

A run without this tag, or with another checksum, is deleted and written again: a process was killed while it wrote the
run, or the trial ran again.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ExecutionError, HarnessError
from harness.printable import sentence
from harness.records import store
from harness.records.record import TrialRecord
from harness.tracking import database, fields
from harness.tracking.fields import DIGEST_TAG, TRIAL_TAG

if TYPE_CHECKING:
    from mlflow.entities import Run

MAX_PARAMS, MAX_METRICS = 100, 900  # in one call of log_batch: MLflow accepts 100 parameters, and 1,000 values in all
MAX_RUNS = 50_000  # of one search: MLflow finds no more
GUIDE = """\
The trials of the suite {suite}: a run is one trial and shows its record. Files of the results folder:
`tables/{suite}.md`; after `harness report`, `reports/{suite}.html`.

Filter by tags, `tags.head = 'softmax'` or `tags.status != 'ok'`, or by any setting, `params.train.lr = '7'`; group by
the tag `row` for means over seeds. `tags.stage = 'table'` leaves out tuning trials. Metrics are of the best epoch by
validation, `last_...` of the last one, `curves/...` are learning curves. Times were measured by the trial itself;
`tags.times` says whether other trials ran at the same time. Tables show times that were measured afterwards, one trial
at a time."""


class Tracker:
    """Shows records while suites run. MLflow is opened when it is first needed. Its first fault is one warning, and
    nothing is shown after that: `harness sync` shows what is missing. No method raises.

    Args:
        results: the results folder; None: nothing is shown.
    """

    def __init__(self, results: Path | None, warn: Callable[[str], None]):
        self.results, self._warn = results, warn
        self._mirror: Mirror | None = None

    def show(self, record: TrialRecord) -> None:
        self._call(lambda mirror: mirror.show(record))

    def show_suite(self, suite: str, records: Iterable[TrialRecord]) -> None:
        """Show those records of a suite that are not shown yet."""
        self._call(lambda mirror: mirror.show_suite(suite, records))

    def _call(self, action: Callable[["Mirror"], None]) -> None:
        if self.results is None:
            return
        try:
            self._mirror = self._mirror or Mirror(self.results)
            action(self._mirror)
        except Exception as error:  # of any kind: MLflow only shows records, so its faults must not fail a trial
            said = sentence(str(error).splitlines()[0] if isinstance(error, HarnessError) else database.reason(error))
            self._warn(f"MLflow is off from here on ({said}); `harness sync` rebuilds it later")
            self.results = None


class Mirror:
    """The view that MLflow's database gives of a results folder. The database is created when needed.

    Raises: ExecutionError, here and in all methods, where `database.client` and `database.writing`
        do, and any exception of MLflow.
    """

    def __init__(self, results: Path):
        self.results = results
        self.client = database.client(results)

    def show(self, record: TrialRecord) -> None:
        """Write the run of a record, in place of all other runs of its trial, unless it shows the record already."""
        with database.writing(self.results):
            experiment = self._experiment(record.suite)
            runs = self._runs(experiment, record.id).get(record.id, [])
            if not _shows(runs, record):
                self._delete(runs)
                self._write(experiment, record)

    def show_suite(self, suite: str, records: Iterable[TrialRecord], *, remove_others: bool = False) -> None:
        """Write the runs of those records of a suite that MLflow does not show. `remove_others`: delete the runs of
        trials that have no record in `records`.
        """
        with database.writing(self.results):
            experiment = self._experiment(suite)
        runs = self._runs(experiment)
        for record in records:
            if not _shows(runs.pop(record.id, []), record):
                self.show(record)  # each under a lock of its own, so that another driver never waits for long
        if remove_others:
            for others in runs.values():
                self._delete(others)

    def _write(self, experiment: str, record: TrialRecord) -> None:
        from mlflow.entities import Metric, Param

        started = fields.milliseconds(record.environment.started)
        finished = fields.milliseconds(record.environment.finished)
        run = self.client.create_run(experiment, started, fields.tags(record), fields.name(record)).info.run_id
        params = [Param(key, value) for key, value in fields.params(record).items()]
        for start in range(0, len(params), MAX_PARAMS):
            self.client.log_batch(run, params=params[start : start + MAX_PARAMS])
        metrics = [Metric(key, value, finished, step) for key, value, step in fields.points(record)]
        for start in range(0, len(metrics), MAX_METRICS):
            self.client.log_batch(run, metrics=metrics[start : start + MAX_METRICS])
        self.client.set_terminated(run, "FINISHED" if record.status == "ok" else "FAILED", finished)
        self.client.set_tag(run, DIGEST_TAG, fields.shown_as(record))

    def _delete(self, runs: Iterable["Run"]) -> None:
        for run in runs:
            self.client.delete_run(run.info.run_id)

    def _runs(self, experiment: str, trial: str | None = None) -> dict[str, list["Run"]]:
        """Trial id -> its runs, of all trials of an experiment or of one. Runs that a user added are left out."""
        question = "" if trial is None else f"tags.`{TRIAL_TAG}` = '{trial}'"
        found: dict[str, list[Run]] = {}
        for run in self.client.search_runs([experiment], question, max_results=MAX_RUNS):
            if TRIAL_TAG in run.data.tags:
                found.setdefault(run.data.tags[TRIAL_TAG], []).append(run)
        return found

    def _experiment(self, suite: str) -> str:
        """The id of a suite's experiment: created when there is none, restored when a user deleted it."""
        found = self.client.get_experiment_by_name(suite)
        if found is None:
            tags = {
                "mlflow.note.content": GUIDE.format(suite=suite),  # the description
                # With this kind the UI opens an experiment on its runs; without one, on a page for traces of
                # language models in use.
                "mlflow.experimentKind": "custom_model_development",
            }
            # no path of this machine: the results folder can be moved
            return self.client.create_experiment(suite, f"mlflow-artifacts:/{suite}", tags)
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return found.experiment_id


def sync(results: Path, warn: Callable[[str], None]) -> tuple[int, int]:
    """Make MLflow's database agree with the records of a results folder: what `harness sync` does. A database that
    MLflow cannot open is set aside, and another one made.

    Returns: the number of records and of suites.
    Raises: ExecutionError: there are no records, or MLflow cannot be imported or written.
    """
    suites = sorted({path.parent.parent for path in (results / "runs").glob(f"*/*/{store.FILE_NAME}")})
    if not suites:
        raise ExecutionError(
            f"{results / 'runs'} holds no records: run a suite first, or name the folder with --results"
        )
    number = 0
    try:
        mirror = _opened(results, warn)
        for folder in suites:
            trials = sorted(path.name for path in folder.iterdir() if path.is_dir())
            records, damaged = store.load_all(folder, trials)
            for said in damaged:
                warn(said)
            mirror.show_suite(folder.name, records.values(), remove_others=True)
            number += len(records)
    except HarnessError:
        raise
    except Exception as cause:  # exceptions of MLflow, SQLAlchemy or Alembic
        said = f"MLflow cannot be written ({database.reason(cause)}); runs and tables work without it"
        raise ExecutionError(said) from cause
    return number, len(suites)


def _opened(results: Path, warn: Callable[[str], None]) -> Mirror:
    """The mirror of a results folder, with a new database where MLflow cannot use the one that is there."""
    try:
        return Mirror(results)
    except database.UnusableDatabase as fault:
        kept = (results / database.DATABASE).replace(results / database.PREVIOUS)
        warn(f"{fault}; it is kept as {kept}, and a new one is written from the records")
        return Mirror(results)


def _shows(runs: Sequence["Run"], record: TrialRecord) -> bool:
    """Whether the runs of a trial are one run, which shows this record."""
    return [run.data.tags.get(DIGEST_TAG) for run in runs] == [fields.shown_as(record)]
