"""What a suite's experiment says of itself in MLflow."""

import json

import pytest

from harness.tracking.description import MAX_CHARACTERS, description, row_names

TABLE = "# tiny, version 1\n\n| head |\n|:-----|\n| mos  |\n"


@pytest.fixture
def results(tmp_path):
    for folder in ("tables", "plots/tiny", "plots/tiny.epochs=1", "plots/tiny2", "reports"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def test_its_first_line_names_the_files_of_the_suite_and_no_other(results):
    for name in ("tables/tiny.md", "tables/tiny2.md", "reports/tiny.html"):
        (results / name).write_text(TABLE)
    said = "`tables/tiny.md`, `reports/tiny.html`, `plots/tiny`"
    assert description("tiny", results).splitlines()[0] == f"Suite tiny. Files of the results folder: {said}."


def test_a_suite_without_files_says_so(tmp_path):
    assert description("tiny", tmp_path).splitlines()[0] == "Suite tiny. Files of the results folder: no table yet."


def test_the_outcome_is_in_the_first_line_and_the_plots_come_next_within_mlflows_limit(results):
    place = results / "artifacts" / "tiny" / "tiny"
    place.mkdir(parents=True)
    summary = {"found": "*tiny* wins", "plots": {"forest.a=1.png": "Change_"}, "names": {}}
    (place / "suite.json").write_text(json.dumps(summary))
    text = description("tiny", results)
    assert text.startswith(r"Suite tiny. \*tiny\* wins. Files of the results folder: ")
    plot = "![forest.a=1.png](ajax-api/2.0/mlflow-artifacts/artifacts/tiny/tiny/forest.a%3D1.png)"
    assert text.split("\n\n")[1:3] == [plot, "Change\\_"]
    many = {**summary, "plots": {f"forest.{n}.png": "y" * 3_000 for n in range(99)}}
    (place / "suite.json").write_text(json.dumps(many))
    assert len(description("tiny", results)) == MAX_CHARACTERS


def test_a_suites_name_is_shown_as_it_is(tmp_path):
    assert "Suite \\*x\\*&lt;b>." in description("*x*<b>", tmp_path)


def test_a_damaged_summary_counts_as_none(results):
    (results / "artifacts" / "tiny" / "tiny").mkdir(parents=True)
    (results / "artifacts" / "tiny" / "tiny" / "suite.json").write_text("{")
    assert description("tiny", results).startswith("Suite tiny. Files of the results folder: ")
    assert row_names("tiny", results) == {}
