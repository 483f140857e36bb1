"""The table of metrics."""

import pytest

from harness.records.metrics import METRICS, metrics_of


def test_no_two_metrics_share_a_label():
    assert len({metric.label for metric in METRICS.values()}) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_an_entry_is_complete(metric):
    assert metric.description.endswith(".")
    assert metric.low < metric.high
    assert metric.digits >= 0
    if metric.timed:
        spread = METRICS[f"{metric.name}_iqr"]
        assert (spread.kind, spread.unit, spread.timed) == ("cost", metric.unit, False)


def test_metrics_of_a_kind_are_in_the_order_of_the_table():
    names = [metric.name for metric in metrics_of("cost", "setting")]
    assert names == [name for name, metric in METRICS.items() if metric.kind in ("cost", "setting")]
    assert {metric.kind for metric in metrics_of("score")} == {"score"}
