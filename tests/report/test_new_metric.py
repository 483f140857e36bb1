"""What a new metric costs: an entry in harness/records/metrics.py and the code that measures it. All views show it."""

import handmade
import pytest

from harness.records import store
from harness.records.metrics import METRICS, Metric
from harness.report import study

NEW = Metric(
    name="test_accuracy",
    label="test accuracy",
    description="Share of test tokens that the model finds most probable.",
    kind="score",
    digits=4,
    direction="higher",
    high=1.0,
    leaderboard=True,
)


@pytest.fixture
def suite(suite_of):
    return suite_of(handmade.SMALL)


@pytest.fixture
def new(monkeypatch):
    """The metric in the table, as an entry there would put it."""
    monkeypatch.setitem(METRICS, NEW.name, NEW)


def finish(suite, results, **metrics: float):
    """Save a record of every trial, each with a metric that its training would have measured."""
    runs = store.runs_folder(results, suite.name)
    for trial in suite.trials:
        contents = suite.contents_of(trial)
        store.save(handmade.record(spec=trial, metrics=metrics, contents=contents), runs)


def test_tables_the_frame_and_the_page_show_a_new_metric(new, suite, tmp_path):
    finish(suite, tmp_path, test_accuracy=0.25)
    made = study.load(suite, tmp_path, warn=[].append)
    header, first, *_ = made.table("csv").splitlines()
    assert dict(zip(header.split(","), first.split(","), strict=True))["test accuracy"] == "0.25"
    assert "| 0.2500 ± 0.0000 |" in made.table("md", wide=True)
    assert "test accuracy" in made.table("latex", wide=True)
    assert set(made.frame()["test_accuracy"]) == {0.25}
    page, *_ = made.write_report()
    text = page.read_text(encoding="utf-8")
    assert f'data-trial="{suite.trials[0].id}" data-metric="test_accuracy" data-value="0.25"' in text
    assert "Share of test tokens that the model finds most probable. Higher is better." in text


@pytest.mark.needs("tracking")
@pytest.mark.needs("board")
def test_diff_the_leaderboard_and_mlflow_show_a_new_metric(new, suite, tmp_path):
    from harness.board import diff, leaderboard
    from harness.board.diff import difference
    from harness.board.groups import gather, groups
    from harness.tracking import fields

    finish(suite, tmp_path, test_accuracy=0.25)
    one, other, *_ = (trial.id for trial in suite.trials)
    found = difference(*diff.of_trials(tmp_path, one, other), tmp_path, top=0)
    assert {each.name: (each.a, each.b) for each in found.metrics}["test_accuracy"] == (0.25, 0.25)
    (group,) = groups(gather(tmp_path, pytest.fail)[0])
    assert "test accuracy" in [column.name for column in leaderboard.table(group).columns]
    assert leaderboard.groups_json((group,))[0]["rows"][0]["test_accuracy"] == 0.25
    record = store.load(store.runs_folder(tmp_path, suite.name), one)
    assert ("test_accuracy", 0.25, 0) in fields.points(record)
