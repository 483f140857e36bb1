"""What a run shows of a record."""

from harness.records.metrics import METRICS
from harness.tracking import fields
from harness.tracking.fields import CURVES

MLFLOW_NAMES = {metric.mlflow for metric in METRICS.values() if metric.mlflow is not None}


def test_metrics_have_the_groups_that_the_charts_are_sorted_into_learning_curves_first():
    # MLflow 3.17, main.js, getBaseChartAndSectionConfigs: groups sorted by name, a metric with several steps is a line
    names = sorted([*MLFLOW_NAMES, *CURVES.values()])
    groups = sorted({name.partition("/")[0] for name in names})
    assert groups == ["curves", "memory", "ngrams", "params", "test", "time", "train", "valid"]
    assert [name for name in names if name.startswith("curves/")] == ["curves/train_loss", "curves/valid_ppl"]
    assert not set(CURVES.values()) & MLFLOW_NAMES


def test_a_run_is_named_by_what_differs_and_seeds_share_a_row(suite, record_of):
    first, second = (record_of(trial) for trial in suite.trials[2:4])  # mos under seeds 1 and 2
    assert fields.name(first) == "mos(num_mixtures=2, dropout=0.1), lstm, markov, seed 1"
    assert fields.tags(first)["row"] == fields.tags(second)["row"]
    tuning = second.model_copy(update={"tuning": True})
    assert fields.name(tuning) == "mos(num_mixtures=2, dropout=0.1), lstm, markov, seed 2, tuning"
    assert fields.tags(tuning)["row"] != fields.tags(second)["row"]
