"""MLflow, a view of the records that can be rebuilt from them. The only module that imports it; driver only.

One experiment a suite, one flat run a trial, found by its tag `harness.trial_id`. A tracking fault never fails a trial.
"""

import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
os.environ["MLFLOW_SQLALCHEMYSTORE_POOLCLASS"] = "NullPool"  # a connection kept open would write to a file set aside

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, ViewType

from harness.errors import BrokenComponent, UnknownComponent
from harness.execution import database, writers
from harness.execution.database import ARTIFACTS, DATABASE, TRIAL_TAG, WRITER_TAG, UnusableDatabase
from harness.plan.parameters import resolved
from harness.records import METRICS, TrialRecord, digest
from harness.registry import BACKBONES, CORPORA, HEADS

for _noisy in ("alembic", "mlflow"):  # after the import, which sets levels of its own
    logging.getLogger(_noisy).setLevel(logging.ERROR)

DIGEST_TAG = "harness.record"  # the record's checksum: tells a rerun from the same record
ENDS = {"ok": "FINISHED", "interrupted": "KILLED"}  # a record's status -> its run's; else FAILED
MAX_BATCH = 1000  # metrics a log_batch may hold


class Tracker:
    """Writes records of one results folder to <results>/mlflow.db; nobody else of us does meanwhile.

    Raises: UnusableDatabase when the database there is damaged; ExecutionError when it is locked or cannot be written.
    """

    def __init__(self, results: Path):
        self.results = results.resolve()
        with database.alone(self.results):
            self.client = opened(self.results)
            self._end_abandoned()

    def log(self, record: TrialRecord) -> None:
        """Make the run of a record's trial show that record; nothing is written when it already does."""
        with self._writing():
            runs = self._runs(self._experiment(record.suite), matching=f"tags.`{TRIAL_TAG}` = '{record.id}'")
            right = [run for run in runs if _shows(run, record)][:1]
            for run in runs:
                if run not in right:
                    self.client.delete_run(run.info.run_id)
            if not right:
                self._write(record)

    def catch_up(self, suite: str, found: Iterable[TrialRecord]) -> None:
        """Log those of a suite's records that no run shows: whoever was to log them died before."""
        with self._writing():
            runs = self._runs(self._experiment(suite))
        shown = {(run.data.tags.get(DIGEST_TAG), run.info.status) for run in runs}
        for record in found:
            if (digest(record), _end(record)) not in shown:
                self.log(record)

    def keep_only(self, suite: str, trial_ids: set[str]) -> None:
        """Delete the runs of trials that have no record any more."""
        with self._writing():
            for run in self._runs(self._experiment(suite)):
                if run.data.tags.get(TRIAL_TAG) not in trial_ids:
                    self.client.delete_run(run.info.run_id)

    def describe(self, suite: str, markdown: str) -> str:
        """Put a suite's table into its experiment's description; returns the experiment's id."""
        with self._writing():
            experiment = self._experiment(suite)
            self.client.set_experiment_tag(experiment, "mlflow.note.content", markdown)
        return experiment

    def _write(self, record: TrialRecord) -> None:
        """A new run. Its digest comes last: a run that a dying writer leaves half written never looks complete."""
        started, finished = (_milliseconds(t) for t in (record.environment.started, record.environment.finished))
        tags = {**_tags(record), WRITER_TAG: writers.current()}
        run = self.client.create_run(self._experiment(record.suite), started, tags, str(record.spec)).info.run_id
        points = _points(record, finished)
        for start in range(0, len(points), MAX_BATCH):
            self.client.log_batch(run, metrics=points[start : start + MAX_BATCH])
        self.client.log_batch(run, params=_params(record))
        self.client.set_tag(run, DIGEST_TAG, digest(record))
        self.client.set_terminated(run, _end(record), finished)

    def _end_abandoned(self) -> None:
        """Runs that a writer of this host left RUNNING when it died are KILLED; logging their records replaces them."""
        experiments = [each.experiment_id for each in self.client.search_experiments()]
        for run in self._runs(*experiments, matching="attributes.status = 'RUNNING'"):
            if writers.gone(run.data.tags.get(WRITER_TAG, "")):
                self.client.set_terminated(run.info.run_id, "KILLED")

    def _runs(self, *experiments: str, matching: str = "") -> list[Run]:
        """All runs, page by page."""
        found = self.client.search_runs(list(experiments), matching, ViewType.ACTIVE_ONLY)
        runs = list(found)
        while found.token:
            found = self.client.search_runs(list(experiments), matching, ViewType.ACTIVE_ONLY, page_token=found.token)
            runs += found
        return runs

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with database.alone(self.results):
            database.refuse_locked(self.results)
            yield

    def _experiment(self, suite: str) -> str:
        found = self.client.get_experiment_by_name(suite)
        if found is None:
            artifacts = self.results / ARTIFACTS / suite
            return self.client.create_experiment(suite, artifact_location=artifacts.as_uri())
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return found.experiment_id


def renewed(results: Path, tell: Callable[[str], None]) -> Tracker:
    """A tracker for rebuilding: a database that cannot be used, or was made in another folder, is set aside first."""
    try:
        if database.exists(results) and (before := database.made_elsewhere(results)):
            raise UnusableDatabase(f"{results / DATABASE} was made for {before}")
        return Tracker(results)
    except UnusableDatabase as fault:
        tell(f"{fault}; it is kept as {database.set_aside(results)}")
        return Tracker(results)


def opened(results: Path) -> MlflowClient:
    """A client of the results folder's database, which is made whole or not at all when there is none.

    Raises: UnusableDatabase when it is damaged or this MLflow cannot use it; ExecutionError when it is locked.
    """
    place, new = results / DATABASE, results / f"{DATABASE}.new"
    if not database.exists(results):
        new.unlink(missing_ok=True)
        MlflowClient(tracking_uri=f"sqlite:///{new}").search_experiments(max_results=1)
        new.replace(place)
    database.refuse_unusable(results)
    try:
        client = MlflowClient(tracking_uri=store_uri(results))
        client.search_experiments(max_results=1)
    except Exception as cause:  # MLflow's, SQLAlchemy's, Alembic's
        reason = f"{type(cause).__name__}: {cause}".splitlines()[0]
        raise UnusableDatabase(f"{place} cannot be used by this MLflow ({reason})") from cause
    return client


def store_uri(results: Path) -> str:
    """The address of a results folder's database."""
    return f"sqlite:///{results.resolve() / DATABASE}"


def _shows(run: Run, record: TrialRecord) -> bool:
    """Whether a run is a record's, complete to its end."""
    return run.data.tags.get(DIGEST_TAG) == digest(record) and run.info.status == _end(record)


def _end(record: TrialRecord) -> str:
    return ENDS.get(record.status, "FAILED")


def _points(record: TrialRecord, finished: int) -> list[Metric]:
    """Final metrics at step 0, where the UI draws them as bars; curves at their epochs. All finite by construction."""
    final = [Metric(METRICS[name], value, finished, 0) for name, value in record.metrics.items() if METRICS[name]]
    names = {"valid_ppl": "curve/valid_ppl", "train_loss": "curve/train_loss", "lr": "curve/lr"}
    curve = [
        Metric(name, getattr(point, field), finished, math.ceil(point.epoch))
        for point in record.curve
        for field, name in names.items()
    ]
    return final + curve


def _params(record: TrialRecord) -> list[Param]:
    """Every setting with its value, defaults too, so that runs can be filtered by any."""
    spec = record.spec
    params: dict[str, Any] = {"seed": spec.seed}
    for kind, registry in {"corpus": CORPORA, "backbone": BACKBONES, "head": HEADS}.items():
        component = getattr(spec, kind)
        params[kind] = component.name
        try:
            values = resolved(registry.get(component.name), component.params)
        except (UnknownComponent, BrokenComponent):  # a plug-in may be gone by the time of a sync
            values = component.params
        params |= {f"{kind}.{name}": value for name, value in values.items()}
    params |= {f"train.{name}": value for name, value in spec.train.model_dump().items()}
    return [Param(name, str(value)) for name, value in params.items()]


def _tags(record: TrialRecord) -> dict[str, str]:
    spec, environment = record.spec, record.environment
    tags = {
        TRIAL_TAG: record.id,
        "suite": record.suite,
        "corpus": spec.corpus.name,
        "backbone": spec.backbone.name,
        "head": spec.head.name,
        "seed": str(spec.seed),
        "status": record.status,
        "commit": environment.commit,
        "device": environment.device,
        "torch": environment.torch,
        "executor": environment.executor,
    }
    if record.message:
        tags["message"] = record.message[:5000]
    return tags


def _milliseconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)
