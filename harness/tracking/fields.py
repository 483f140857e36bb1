"""What MLflow shows of records: tags, parameters and metrics of a run, and saved views of a suite's runs. Nothing here
imports MLflow.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.errors import BrokenComponent, DuplicateComponent, RecordError, UnknownComponent
from harness.plan.parameters import resolved
from harness.printable import printable
from harness.records import sidecars, store
from harness.records.metrics import METRICS
from harness.records.record import TrialRecord
from harness.registry import BACKBONES, CORPORA, HEADS

TRIAL_TAG, DIGEST_TAG = "harness.trial_id", "harness.record"  # the trial of a run, and what the run shows
MAX_PARAM, MAX_TAG = 6000, 5000  # characters: MLflow refuses more in a parameter, and more than 8000 in a tag
# MLflow's table shows the last point of a metric. Curves therefore have names of their own: valid/ppl has one value,
# which is of the best epoch. The charts of MLflow's UI are in groups by what is before the '/', the groups in the order
# of the alphabet: learning curves are the first thing that a reader sees, because 'curves' is before all other groups.
CURVES = {"valid_ppl": "curves/valid_ppl", "train_loss": "curves/train_loss", "lr": "train/lr_by_epoch"}
DIGITS = 6  # significant digits of a number; the record has all of them
LAYOUT = 4  # raised when a run is to show a record in another way: runs of earlier layouts are then written again
MAX_RUN_NAME = 250  # characters
ROW_TAG = "row"  # equal for trials that differ only in their seed; tuning trials are in no row of a table
STAGE_TAG, TABLE_STAGE, TUNING = "stage", "table", "tuning"
DIAGNOSTICS_GROUP = "diagnostics"  # of charts: after the learning curves
RUNS_VIEW, CHARTS_VIEW = "harness-runs", "harness-curves"  # the keys of saved views
# MLflow keeps a saved view in a tag of the experiment, which any client may set. The content of this tag is not
# documented: it is what the UI of MLflow 3.17 writes and reads. A UI that cannot read it shows its plain table.
VIEW_TAG = "mlflow.sharedViewState."  # the key follows
COLUMNS = {  # of the table of runs, in their order -> their widths in pixels
    "attributes.`Run Name`": 460,
    "metrics.`valid/ppl`": 105,
    "metrics.`test/ppl`": 105,
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
MIXTURES = "num_mixtures"
FIRST_SECTION = "comparison"  # of charts; MLflow sorts sections by name


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric. `step`: the epoch, or 0 for a metric that a trial has once, drawn as a bar."""

    key: str
    value: float
    step: int


def points(record: TrialRecord) -> list[Point]:
    """The final metrics of a record, then the points of its curves.

    The perplexities of an invalid record are left out: they would be the first in a list sorted by perplexity. They
    remain in the record itself.
    """
    if record.status == "invalid":  # guard: invalid-run
        kept = {name: value for name, value in record.metrics.items() if METRICS[name].kind != "score"}
        record = record.model_copy(update={"metrics": kept, "curve": ()})
    final = [
        Point(METRICS[name].mlflow, rounded(value), 0) for name, value in record.metrics.items() if METRICS[name].mlflow
    ]
    curves = [
        Point(name, rounded(getattr(at, field)), math.ceil(at.epoch))
        for at in record.curve
        for field, name in CURVES.items()
    ]
    return list(dict.fromkeys(final + curves))


def rounded(value: float) -> float:
    """A number with DIGITS significant digits; whole numbers, such as counts of parameters, are not changed."""
    return value if value == int(value) else float(f"{value:.{DIGITS}g}")


def name(record: TrialRecord, row: str | None = None) -> str:
    """The name of a run: 'MoS 2, seed 1', of a tuning trial '..., seed 1, tuning'; where the name of its row is not
    known, 'mos(num_mixtures=2), lstm, ptb, seed 1'.
    """
    spec, stage = record.spec, f", {TUNING}" if record.tuning else ""
    row = row or f"{spec.head}, {spec.backbone.name}, {spec.corpus.name}"
    return printable(f"{row}, seed {spec.seed}{stage}")[:MAX_RUN_NAME]


def row_tag(record: TrialRecord, row: str | None = None) -> str:
    """What trials that differ only in their seed have in common: the charts show their means under this name."""
    spec, stage = record.spec, f"{TUNING} " if record.tuning else ""
    return printable(row or f"{stage}{spec.head} {spec.backbone} {spec.corpus}")[:MAX_TAG]


def shown_as(record: TrialRecord, diagnosed: Iterable[Point] = ()) -> str:
    """What a run shows: the checksum of the record, the layout, and the checksum of its diagnostics if it has any."""
    numbers = "\n".join(sorted(f"{point.key} {point.value!r}" for point in diagnosed))
    checksum = hashlib.sha256(numbers.encode()).hexdigest()[:16] if numbers else ""
    return f"{store.digest(record)} {LAYOUT} {checksum}".strip()


def params(record: TrialRecord) -> dict[str, str]:
    """Every setting of a trial and its value, defaults included, so that runs can be filtered by any setting."""
    spec, found = record.spec, {"seed": record.spec.seed}
    for kind, registry in {"corpus": CORPORA, "backbone": BACKBONES, "head": HEADS}.items():
        component = getattr(spec, kind)
        try:
            values = resolved(registry.get(component.name), component.params)
        except (UnknownComponent, BrokenComponent, DuplicateComponent):  # an old record's plug-in is not installed
            values = component.params
        found |= {kind: component.name} | {f"{kind}.{name}": value for name, value in values.items()}
    found |= {f"train.{name}": value for name, value in spec.train.model_dump().items()}
    return {name: str(value)[:MAX_PARAM] for name, value in found.items()}


def tags(record: TrialRecord) -> dict[str, str]:
    """What runs are filtered and grouped by. The tag `head` is the head with its parameters, `mos(num_mixtures=10)`;
    the parameter `head` is its name alone, `mos`.
    """
    spec, environment = record.spec, record.environment
    values = {
        TRIAL_TAG: record.id,
        "suite": record.suite,
        "corpus": str(spec.corpus),
        "backbone": str(spec.backbone),
        "head": str(spec.head),
        ROW_TAG: row_tag(record),
        "seed": str(spec.seed),
        "status": record.status,
        "times": "shared" if environment.shared else "alone",  # whether other trials could run at the same time
        "device": environment.device,
        "commit": environment.commit,
        "torch": environment.torch,
        "executor": environment.executor,
        "message": record.message,
        STAGE_TAG: TUNING if record.tuning else TABLE_STAGE,
    }
    return {name: printable(value)[:MAX_TAG] for name, value in values.items() if value}


def diagnosed_points(runs: Path, record: TrialRecord) -> list[Point]:
    """The numbers in the tables of diagnostics, of the newest result of each diagnostic: 'diagnostics/gates.used'.

    A damaged file counts as none: `harness diagnose` says so, and replaces it.
    """
    if not (store.folder(runs, record.id) / sidecars.DIAGNOSES.file).is_file():
        return []
    from harness.diagnostics.catalogue import DIAGNOSTICS  # here: it imports torch, which most folders do not need
    from harness.diagnostics.diagnosing import result_of

    stored = ()
    with suppress(RecordError):
        stored = sidecars.DIAGNOSES.load(runs, record) or ()
    newest = {each.diagnostic: each for each in sorted(stored, key=lambda each: each.taken)}
    results = {name: result_of(newest[name], of) for name, of in DIAGNOSTICS.items() if name in newest}
    return [
        Point(metric_name(name, figure.name), rounded(float(value)), 0)
        for name, result in results.items()
        for figure in (DIAGNOSTICS[name].figures if result is not None else ())
        if (value := figure.value(result)) is not None
    ]


def metric_name(diagnostic: str, column: str) -> str:
    """The name of a column's numbers, as MLflow allows it: 'diagnostics/spectrum.centred_rank_1e-3'."""
    return f"{DIAGNOSTICS_GROUP}/{diagnostic}.{re.sub(r'[^A-Za-z0-9.-]+', '_', column).strip('_')}"


def views(records: Iterable[TrialRecord]) -> dict[str, str]:
    """Tag of an experiment -> a saved view: the runs by test perplexity, and charts of means over seeds.

    Both leave out tuning trials, which have another budget and settings that were not chosen. The first charts are
    parallel coordinates and, for heads with mixtures, perplexity by their number.
    """
    columns = {"selectedColumns": list(COLUMNS)[1:], "columnOrder": list(COLUMNS), "columnWidths": COLUMNS}
    best_first = {"orderByKey": "metrics.`test/ppl`", "orderByAsc": True, "runsHiddenMode": "FIRST_20_RUNS"}
    best_first["searchFilter"] = f"tags.{STAGE_TAG} = '{TABLE_STAGE}'"
    by_row = [{"mode": "tag", "groupByData": ROW_TAG}]
    means = {"groupBy": {"aggregateFunction": "average", "groupByKeys": by_row}, "useGroupedValuesInCharts": True}
    charts = _charts(any(MIXTURES in record.spec.head.params for record in records))
    states = {
        RUNS_VIEW: ("trials, lowest test perplexity first", {**best_first, **columns}),
        CHARTS_VIEW: ("charts, means over seeds", {**best_first, **columns, **means, **charts}),
    }
    return {
        f"{VIEW_TAG}{key}": json.dumps({"name": name, "createdAt": 0, "state": json.dumps(state)})
        for key, (name, state) in states.items()
    }


def milliseconds(moment: str) -> int:
    """A time of a record, in ISO 8601 -> milliseconds since 1970, as MLflow counts time."""
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


def _charts(mixtures: bool) -> dict[str, Any]:
    """The first charts. Parallel coordinates show means of numbers only, and leave out rows without one of them: the
    number of mixtures has a chart of its own.
    """
    across = ["params/total", "time/train_ms_per_batch", "valid/ppl", "test/ppl"]
    charts = [{"type": "PARALLEL", "selectedParams": [], "selectedMetrics": across, "showAllRuns": False}]
    if mixtures:
        axes = {"xaxis": {"key": f"head.{MIXTURES}", "type": "PARAM"}, "yaxis": {"key": "test/ppl", "type": "METRIC"}}
        charts.append({"type": "SCATTER", **axes})
    about = {"metricSectionId": FIRST_SECTION, "runsCountToCompare": 100, "deleted": False, "isGenerated": False}
    section = {"uuid": FIRST_SECTION, "name": FIRST_SECTION, "columns": 2, "display": True, "isReordered": False}
    return {
        "compareRunCharts": [{"uuid": f"harness-{number}", **about, **chart} for number, chart in enumerate(charts)],
        "compareRunSections": [{**section, "deleted": False, "isGenerated": False}],
    }
