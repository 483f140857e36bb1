"""Two saved views of a suite's runs for the menu "Views" of MLflow's UI: a table of trials, and curves.

MLflow keeps a saved view in a tag of the experiment, which any client may set. The content of this tag is not
documented: it is what the UI of MLflow 3.17 writes and reads. A UI that cannot read it shows its plain table.
"""

import json
from typing import Any

from harness.tracking.run_fields import ROW_TAG, STAGE_TAG, TABLE_STAGE

PREFIX = "mlflow.sharedViewState."  # of the tag; the key of the view follows, as in the parameter viewStateShareKey
RUNS_VIEW, CURVES_VIEW = "harness-runs", "harness-curves"  # the keys
COLUMNS = {  # of the table, in their order -> their widths in pixels
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


def tags() -> dict[str, str]:
    """Tag of an experiment -> a saved view: the runs by validation perplexity, and curves, each the mean over seeds.

    Both leave out tuning trials, which have another budget and settings that were not chosen.
    """
    columns = {"selectedColumns": list(COLUMNS)[1:], "columnOrder": list(COLUMNS), "columnWidths": COLUMNS}
    best_first = {"orderByKey": "metrics.`valid/ppl`", "orderByAsc": True, "runsHiddenMode": "FIRST_20_RUNS"}
    best_first["searchFilter"] = f"tags.{STAGE_TAG} = '{TABLE_STAGE}'"
    by_row = [{"mode": "tag", "groupByData": ROW_TAG}]
    means = {"groupBy": {"aggregateFunction": "average", "groupByKeys": by_row}, "useGroupedValuesInCharts": True}
    return {
        f"{PREFIX}{RUNS_VIEW}": _view("trials, best validation perplexity first", {**best_first, **columns}),
        f"{PREFIX}{CURVES_VIEW}": _view("curves, means over seeds", {**best_first, **columns, **means}),
    }


def _view(name: str, state: dict[str, Any]) -> str:
    return json.dumps({"name": name, "createdAt": 0, "state": json.dumps(state)})
