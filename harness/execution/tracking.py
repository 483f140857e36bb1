"""MLflow, a view of the records that can be rebuilt from them. The only module that imports it; driver only.

One experiment a suite, one flat run a trial, found by its tag `harness.trial_id`. A tracking fault never fails a trial.
"""

import logging
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, ViewType

from harness.errors import BrokenComponent, ExecutionError, UnknownComponent
from harness.plan.parameters import resolved
from harness.records import METRICS, TrialRecord, digest
from harness.registry import BACKBONES, CORPORA, HEADS

for _noisy in ("alembic", "mlflow"):  # after the import, which sets levels of its own
    logging.getLogger(_noisy).setLevel(logging.ERROR)

DATABASE, SQLITE = "mlflow.db", b"SQLite format 3\0"
TRIAL_TAG = "harness.trial_id"
DIGEST_TAG = "harness.record"  # the record's checksum: tells a rerun from the same record
MAX_BATCH = 1000  # metrics a log_batch may hold
UI_SECONDS = 60
UI_LOG = ".mlflow-ui.log"


class Tracker:
    """Writes records of one results folder to <results>/mlflow.db."""

    def __init__(self, results: Path):
        self.results = results.resolve()
        (self.results / "runs").mkdir(parents=True, exist_ok=True)
        with FileLock(self.results / "runs" / ".mlflow.lock"):  # the first to come creates the schema, alone
            self.client = _opened(self.results)

    def log(self, record: TrialRecord) -> None:
        """Make the run of a record's trial show that record; nothing is written when it already does."""
        experiment = self._experiment(record.suite)
        existing = self.client.search_runs(
            [experiment], f"tags.`{TRIAL_TAG}` = '{record.id}'", run_view_type=ViewType.ACTIVE_ONLY
        )
        if any(run.data.tags.get(DIGEST_TAG) == digest(record) for run in existing):
            return
        for run in existing:
            self.client.delete_run(run.info.run_id)
        started, finished = (_milliseconds(t) for t in (record.environment.started, record.environment.finished))
        run = self.client.create_run(experiment, started, _tags(record), str(record.spec))
        points = _points(record, finished)
        for start in range(0, max(len(points), 1), MAX_BATCH):
            self.client.log_batch(run.info.run_id, metrics=points[start : start + MAX_BATCH])
        self.client.log_batch(run.info.run_id, params=_params(record))
        self.client.set_terminated(run.info.run_id, "FINISHED" if record.status == "ok" else "FAILED", finished)

    def keep_only(self, suite: str, trial_ids: set[str]) -> None:
        """Delete the runs of trials that have no record any more."""
        experiment, page, stale = self._experiment(suite), None, []
        while True:
            runs = self.client.search_runs([experiment], run_view_type=ViewType.ACTIVE_ONLY, page_token=page)
            stale += [run.info.run_id for run in runs if run.data.tags.get(TRIAL_TAG) not in trial_ids]
            page = runs.token
            if not page:
                break
        for run_id in stale:
            self.client.delete_run(run_id)

    def describe(self, suite: str, markdown: str) -> str:
        """Put a suite's table into its experiment's description; returns the experiment's id."""
        experiment = self._experiment(suite)
        self.client.set_experiment_tag(experiment, "mlflow.note.content", markdown)
        return experiment

    def _experiment(self, suite: str) -> str:
        found = self.client.get_experiment_by_name(suite)
        if found is None:
            artifacts = self.results / "artifacts" / suite
            return self.client.create_experiment(suite, artifact_location=artifacts.as_uri())
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return found.experiment_id


def _opened(results: Path) -> MlflowClient:
    """A client of the results folder's database. Raises ExecutionError when the file there is none, or is damaged."""
    place = results / DATABASE
    unfit = f"{place} is no SQLite database or is damaged; move it away and run `harness sync`"
    if place.exists():  # MLflow itself tries for over a minute before it gives up
        with place.open("rb") as file:
            if file.read(len(SQLITE)) not in (SQLITE, b""):
                raise ExecutionError(unfit)
    try:
        client = MlflowClient(tracking_uri=store_uri(results))
        client.search_experiments(max_results=1)
    except Exception as cause:  # MLflow's, SQLAlchemy's, Alembic's: the database cannot be used
        raise ExecutionError(unfit) from cause
    return client


def store_uri(results: Path) -> str:
    """The address of a results folder's database."""
    return f"sqlite:///{results.resolve() / DATABASE}"


def deep_link(base: str, experiment: str | None, *, charts: bool = False) -> str:
    """An experiment's run table, or its charts; the UI's own landing page is an empty overview of something else."""
    if experiment is None:
        return f"{base}/#/experiments"
    return f"{base}/#/experiments/{experiment}/runs?workflowType=machine_learning{'&compareRunsMode=CHART' * charts}"


def serve(results: Path, port: int, suite: str | None, announce: Callable[[str], None]) -> int:
    """Start the UI on 127.0.0.1, announce its deep link when it answers, and stay until it ends; its exit code.

    Raises: ExecutionError when there is nothing to show, the suite is unknown, or the UI does not come up.
    """
    if not (results / DATABASE).exists():
        raise ExecutionError(f"{results / 'mlflow.db'} does not exist: run a suite first, or `harness sync`")
    client = _opened(results)
    experiments = {e.name: e.experiment_id for e in client.search_experiments(order_by=["last_update_time DESC"])}
    experiments.pop("Default", None)
    if suite is not None and suite not in experiments:
        raise ExecutionError(f"no suite '{suite}' in {results / 'mlflow.db'} (known: {', '.join(sorted(experiments))})")
    base = f"http://127.0.0.1:{port}"
    if _answers(base):
        raise ExecutionError(f"port {port} is taken; choose another with --port")
    options = ["--backend-store-uri", store_uri(results), "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    log = results / "runs" / UI_LOG
    with log.open("wb") as output:
        server = subprocess.Popen([sys.executable, "-m", "mlflow", "server", *options], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + UI_SECONDS
        while not _answers(base):
            if server.poll() is not None or time.monotonic() > deadline:
                raise ExecutionError(f"the MLflow UI did not come up on {base}; its log is {log}")
            time.sleep(0.3)
        shown = experiments[suite] if suite else next(iter(experiments.values()), None)
        announce(f"runs:   {deep_link(base, shown)}\ncurves: {deep_link(base, shown, charts=True)}\nCtrl-C ends it")
        return server.wait()
    finally:
        server.terminate()
        server.wait()


def _answers(base: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base}/health", timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _points(record: TrialRecord, finished: int) -> list[Metric]:
    """Final metrics at step 0, where the UI draws them as bars; curves at their epochs. All finite by construction."""
    final = [Metric(METRICS[name], value, finished, 0) for name, value in record.metrics.items() if METRICS[name]]
    names = {"valid_ppl": "curve/valid_ppl", "train_loss": "curve/train_loss", "lr": "curve/lr"}
    curve = [
        Metric(name, getattr(point, field), finished, point.epoch)
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
        DIGEST_TAG: digest(record),
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
