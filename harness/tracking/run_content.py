"""What MLflow shows: of a record its tags, params and points; of a suite the views of its runs.

Nothing here imports MLflow, or knows how it stores anything: harness/tracking/mlflow_runs.py does.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.errors import BrokenComponent, UnknownComponent
from harness.plan.parameters import resolved
from harness.printable import printable
from harness.records.metrics import METRICS
from harness.records.record import TrialRecord
from harness.records.store import digest
from harness.registry import BACKBONES, CORPORA, HEADS
from harness.tracking.database import DIGEST_TAG, TRIAL_TAG

MAX_PARAM, MAX_TAG = 6000, 5000  # characters: MLflow refuses more of a param, and 8000 of a tag
# A curve's last point is what MLflow's table shows of a metric, so curves have names of their own: valid/ppl is one
# value, of the best epoch.
CURVES = {"valid_ppl": "valid/ppl_by_epoch", "train_loss": "train/loss_by_epoch", "lr": "train/lr_by_epoch"}

# A saved view of MLflow's run table (its "Views" menu), stored as a tag of the experiment under this prefix and opened
# by the address' viewStateShareKey. Where an MLflow does not know it, the plain table opens.
VIEW_PREFIX, RUNS_VIEW, CURVES_VIEW = "mlflow.sharedViewState.", "harness-runs", "harness-curves"
COLUMNS = {  # of the run table, in their order: its key for each, and its width in pixels
    "attributes.`Run Name`": 350,
    "metrics.`test/ppl`": 105,
    "metrics.`valid/ppl`": 105,
    "metrics.`time/train_ms_per_batch`": 195,
    "metrics.`time/train_minutes`": 155,
    "metrics.`params/total`": 115,
    "metrics.`params/head`": 115,
    "tags.`status`": 90,
    "tags.`seed`": 70,
    "tags.`head`": 190,
    "tags.`backbone`": 190,
    "tags.`corpus`": 120,
    "tags.`device`": 150,
}
ROW_TAG = "row"  # the same for trials that differ in their seed only


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric; its step is an epoch, or 0 for what a trial has only one of: that is drawn as a bar."""

    key: str
    value: float
    step: int


def points(record: TrialRecord) -> list[Point]:
    """The final metrics, then the curves at their epochs. All finite by construction. Of an invalid record no
    perplexity, which would stand first in a list sorted by it: its record has them.
    """
    if record.status == "invalid":
        kept = {name: value for name, value in record.metrics.items() if METRICS[name].kind != "score"}
        record = record.model_copy(update={"metrics": kept, "curve": ()})
    final = [Point(METRICS[name].mlflow, value, 0) for name, value in record.metrics.items() if METRICS[name].mlflow]
    curves = [
        Point(name, getattr(at, field), math.ceil(at.epoch)) for at in record.curve for field, name in CURVES.items()
    ]
    return list(dict.fromkeys(final + curves))


def params(record: TrialRecord) -> dict[str, str]:
    """Every setting with its value, defaults too, so that runs can be filtered by any."""
    return {name: str(value)[:MAX_PARAM] for name, value in _settings(record)}


def _settings(record: TrialRecord) -> Iterator[tuple[str, Any]]:
    spec = record.spec
    yield "seed", spec.seed
    for kind, registry in {"corpus": CORPORA, "backbone": BACKBONES, "head": HEADS}.items():
        component = getattr(spec, kind)
        yield kind, component.name
        try:
            values = resolved(registry.get(component.name), component.params)
        except (UnknownComponent, BrokenComponent):  # a plug-in may be gone by the time of a sync
            values = component.params
        yield from ((f"{kind}.{name}", value) for name, value in values.items())
    yield from ((f"train.{name}", value) for name, value in spec.train.model_dump().items())


def tags(record: TrialRecord) -> dict[str, str]:
    """What runs are filtered and grouped by: tags.head = 'mos(num_mixtures=10)', where params.head = 'mos' is any of
    them.
    """
    spec, environment = record.spec, record.environment
    told = {
        TRIAL_TAG: record.id,
        DIGEST_TAG: digest(record),
        "suite": record.suite,
        "corpus": str(spec.corpus),
        "backbone": str(spec.backbone),
        "head": str(spec.head),
        ROW_TAG: f"{spec.head} {spec.backbone} {spec.corpus}",
        "seed": str(spec.seed),
        "status": record.status,
        "times": "shared" if environment.shared else "alone",  # whether other trials could run meanwhile
        "device": environment.device,
        "commit": environment.commit,
        "torch": environment.torch,
        "executor": environment.executor,
        "message": record.message,
    }
    return {name: printable(value)[:MAX_TAG] for name, value in told.items() if value}


def views() -> dict[str, str]:
    """Tag of an experiment -> a saved view: the runs by test perplexity, and the curves, each the mean over seeds."""
    columns = {"selectedColumns": list(COLUMNS)[1:], "columnOrder": list(COLUMNS), "columnWidths": COLUMNS}
    best_first = {"orderByKey": "metrics.`test/ppl`", "orderByAsc": True, "runsHiddenMode": "FIRST_20_RUNS"}
    by_row = [{"mode": "tag", "groupByData": ROW_TAG}]
    means = {"groupBy": {"aggregateFunction": "average", "groupByKeys": by_row}, "useGroupedValuesInCharts": True}
    return {
        f"{VIEW_PREFIX}{RUNS_VIEW}": _view("trials, best test perplexity first", {**best_first, **columns}),
        f"{VIEW_PREFIX}{CURVES_VIEW}": _view("curves, means over seeds", {**best_first, **columns, **means}),
    }


def _view(name: str, state: dict[str, Any]) -> str:
    return json.dumps({"name": name, "createdAt": 0, "state": json.dumps(state)})


def milliseconds(moment: str) -> int:
    """A record's time as MLflow counts it."""
    return int(datetime.fromisoformat(moment).timestamp() * 1000)
