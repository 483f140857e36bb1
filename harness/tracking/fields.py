"""What a run of MLflow shows of a record: its name, tags, parameters and metrics. Nothing here imports MLflow."""

import math
from collections.abc import Mapping
from datetime import datetime

from harness.plan.specs import value_text
from harness.printable import printable
from harness.records import store
from harness.records.metrics import METRICS
from harness.records.record import TrialRecord
from harness.records.settings import all_settings

TRIAL_TAG, DIGEST_TAG = "harness.trial_id", "harness.record"  # the trial of a run, and what the run shows
MAX_NAME, MAX_PARAM, MAX_TAG = 250, 6000, 5000  # characters: MLflow refuses more in a parameter or a tag
# MLflow's table shows the last point of a metric. Curves therefore have names of their own: valid_ppl has one value,
# which is of the best epoch. In MLflow's UI the charts of curves are a group, by what is before the '/'.
CURVES = {name: f"curves/{name}" for name in ("valid_ppl", "train_loss", "lr")}
LAYOUT = 6  # raised when a run is to show a record in another way: runs of earlier layouts are then written again


def points(record: TrialRecord) -> list[tuple[str, float, int]]:
    """Name, value and step of the final metrics of a record, under their names in it and at step 0, which MLflow draws
    as bars; then those of its curves, by epoch.

    The perplexities of an invalid record are left out: they would be the first in a list sorted by perplexity. They
    remain in the record itself.
    """
    invalid = record.status == "invalid"
    found = []
    for key, value in record.metrics.items():
        if not (invalid and METRICS[key].kind == "score"):
            found.append((key, value, 0))
    for at in () if invalid else record.curve:
        for field, key in CURVES.items():
            found.append((key, getattr(at, field), math.ceil(at.epoch)))
    return found


def name(record: TrialRecord) -> str:
    """The name of a run: 'mos(num_mixtures=2), lstm, ptb, seed 1', of a tuning trial '..., seed 1, tuning'."""
    spec, stage = record.spec, ", tuning" if record.tuning else ""
    return printable(f"{spec.head}, {spec.backbone.name}, {spec.corpus.name}, seed {spec.seed}{stage}")[:MAX_NAME]


def shown_as(record: TrialRecord) -> str:
    """What a run shows: the checksum of the record, and the layout."""
    return f"{store.digest(record)} {LAYOUT}"


def params(record: TrialRecord) -> dict[str, str]:
    """Every setting of a trial and its value, defaults included, so that runs can be filtered by any setting."""
    return {key: value_text(value)[:MAX_PARAM] for key, value in all_settings(record.spec).items()}


def tags(record: TrialRecord) -> dict[str, str]:
    """What runs are filtered and grouped by. The tag `head` is the head with its parameters, `mos(num_mixtures=10)`;
    the parameter `head` is its name alone, `mos`. Trials that differ only in their seed have the same `row`. Those of
    one size of a ladder have the same `size`: the parameters outside of the head, whichever head it is.
    """
    spec, environment = record.spec, record.environment
    stage = "tuning" if record.tuning else "table"
    values = {
        TRIAL_TAG: record.id,
        "suite": record.suite,
        "corpus": str(spec.corpus),
        "backbone": str(spec.backbone),
        "head": str(spec.head),
        "row": f"{stage}: {spec.head} {spec.backbone} {spec.corpus}",
        "seed": str(spec.seed),
        "status": record.status,
        "times": "shared" if environment.shared else "alone",  # whether other trials could run at the same time
        "device": environment.device,
        "commit": environment.commit,
        "torch": environment.torch,
        "executor": environment.executor,
        "message": record.message,
        "stage": stage,
        "size": _size(record.metrics),
    }
    return {key: printable(value)[:MAX_TAG] for key, value in values.items() if value}


def _size(metrics: Mapping[str, float]) -> str:
    """The number of parameters outside of the head; '' where they were not counted."""
    if not metrics.keys() >= {"params_total", "params_head"}:
        return ""
    return f"{metrics['params_total'] - metrics['params_head']:.0f}"


def milliseconds(moment: str) -> int:
    """A time of a record, in ISO 8601 -> milliseconds since 1970, as MLflow counts time."""
    return int(datetime.fromisoformat(moment).timestamp() * 1000)
