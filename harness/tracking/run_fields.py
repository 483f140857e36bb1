"""What an MLflow run shows of a record: its tags, parameters and metrics. Nothing here imports MLflow."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.errors import BrokenComponent, DuplicateComponent, UnknownComponent
from harness.plan.parameters import resolved
from harness.printable import printable
from harness.records.metrics import METRICS
from harness.records.record import TrialRecord
from harness.records.store import digest
from harness.registry import BACKBONES, CORPORA, HEADS
from harness.tracking.database import DIGEST_TAG, TRIAL_TAG

MAX_PARAM, MAX_TAG = 6000, 5000  # characters: MLflow refuses more in a parameter, and more than 8000 in a tag
# MLflow's table shows the last point of a metric. Curves therefore have names of their own: valid/ppl has one value,
# which is of the best epoch. The charts of MLflow's UI are in groups by what is before the '/', the groups in the order
# of the alphabet: learning curves are the first thing that a reader sees, because 'curves' is before all other groups.
CURVES = {"valid_ppl": "curves/valid_ppl", "train_loss": "curves/train_loss", "lr": "train/lr_by_epoch"}
DIGITS = 6  # significant digits of a number; the record has all of them
LAYOUT = 3  # raised when a run is to show a record in another way: runs of earlier layouts are then written again
MAX_RUN_NAME = 250  # characters
ROW_TAG = "row"  # equal for trials that differ only in their seed; tuning trials are in no row of a table
STAGE_TAG, TABLE_STAGE, TUNING = "stage", "table", "tuning"


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric.

    Args:
        key: the name of the metric in MLflow.
        value: a finite number.
        step: the epoch, or 0 for a metric that a trial has once; MLflow draws the latter as a bar.
    """

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


def name(record: TrialRecord) -> str:
    """The name of a run: 'mos(num_mixtures=2), lstm, ptb, seed 1', of a tuning trial '..., seed 1, tuning'. The
    parameters of backbone and corpus are tags: with them, the UI's table would cut the name before the seed.
    """
    spec, stage = record.spec, f", {TUNING}" if record.tuning else ""
    return printable(f"{spec.head}, {spec.backbone.name}, {spec.corpus.name}, seed {spec.seed}{stage}")[:MAX_RUN_NAME]


def shown_as(record: TrialRecord, diagnosed: str = "") -> str:
    """What a run shows: the checksum of the record, the layout, and the checksum of its diagnostics if it has any."""
    return f"{digest(record)} {LAYOUT} {diagnosed}".strip()


def params(record: TrialRecord) -> dict[str, str]:
    """Every setting of a trial and its value, defaults included, so that runs can be filtered by any setting."""
    return {name: str(value)[:MAX_PARAM] for name, value in _settings(record)}


def tags(record: TrialRecord) -> dict[str, str]:
    """What runs are filtered and grouped by. The tag `head` is the head with its parameters, `mos(num_mixtures=10)`;
    the parameter `head` is its name alone, `mos`.
    """
    spec, environment = record.spec, record.environment
    values = {
        TRIAL_TAG: record.id,
        DIGEST_TAG: shown_as(record),
        "suite": record.suite,
        "corpus": str(spec.corpus),
        "backbone": str(spec.backbone),
        "head": str(spec.head),
        ROW_TAG: f"{f'{TUNING} ' if record.tuning else ''}{spec.head} {spec.backbone} {spec.corpus}",
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


def milliseconds(moment: str) -> int:
    """A time of a record, in ISO 8601 -> milliseconds since 1970, as MLflow counts time."""
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


def _settings(record: TrialRecord) -> Iterator[tuple[str, Any]]:
    spec = record.spec
    yield "seed", spec.seed
    for kind, registry in {"corpus": CORPORA, "backbone": BACKBONES, "head": HEADS}.items():
        component = getattr(spec, kind)
        yield kind, component.name
        try:
            values = resolved(registry.get(component.name), component.params)
        except (
            UnknownComponent,
            BrokenComponent,
            DuplicateComponent,
        ):  # the plug-in of an old record may not be installed any more
            values = component.params
        yield from ((f"{kind}.{name}", value) for name, value in values.items())
    yield from ((f"train.{name}", value) for name, value in spec.train.model_dump().items())
