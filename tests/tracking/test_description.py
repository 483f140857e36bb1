"""What a suite's experiment says of itself in MLflow."""

import json

import pytest

from harness.tracking.description import MAX_CHARACTERS, MAX_NAMED, description, row_names

TABLE = "# tiny, version 1\n\n| head |\n|:-----|\n| mos  |\n"


@pytest.fixture
def results(tmp_path):
    for folder in ("tables", "plots/tiny", "plots/tiny.epochs=1", "plots/tiny2", "reports"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def test_its_first_line_names_the_files_of_the_suite_and_no_other(results):
    for name in (
        "tables/tiny.md",
        "tables/tiny.epochs=1.md",
        "tables/tiny2.md",
        "reports/tiny.html",
        "reports/tiny2.html",
    ):
        (results / name).write_text(TABLE)
    for name in (
        "plots/tiny/curves.png",
        "plots/tiny/pareto.png",
        "plots/tiny.epochs=1/curves.png",
        "plots/tiny2/curves.png",
    ):
        (results / name).write_bytes(b"")
    assert description("tiny", results).splitlines()[0] == (
        "Suite tiny. Files of the results folder: page: `reports/tiny.html`; "
        "table: `tables/tiny.md`, `tables/tiny.epochs=1.md`; plots: `plots/tiny`, `plots/tiny.epochs=1`."
    )


def test_the_tables_follow_with_a_smaller_heading(results):
    (results / "tables" / "tiny.md").write_text(TABLE)
    assert description("tiny", results).endswith("\n\n##" + TABLE)


def test_a_suite_without_files_says_so(tmp_path):
    assert description("tiny", tmp_path).splitlines()[0] == "Suite tiny. Files of the results folder: no table yet."


@pytest.mark.parametrize(("rows", "shown"), [(10, 13), (1_000, 3), (100_000, 1)])  # a row has nine characters
def test_what_mlflow_has_no_room_for_is_counted_instead(results, rows, shown):
    for number in range(12):
        (results / "tables" / f"tiny.lr={number:03}.md").write_text(TABLE + "| mos  |\n" * rows)
    (results / "tables" / "tiny.md").write_text(TABLE)
    text = description("tiny", results)
    assert len(text) <= MAX_CHARACTERS
    assert "##" + TABLE in text
    assert text.count("\n### ") == shown
    assert (f"Too long to be shown here: {13 - shown} tables" in text) is (shown < 13)
    assert f"and {13 - MAX_NAMED} more" in text


def test_many_long_captions_leave_room(results):
    (results / "artifacts" / "tiny" / "tiny").mkdir(parents=True)
    summary = {"found": "x" * 9_000, "plots": {f"forest.{n}.png": "y" * 3_000 for n in range(99)}, "names": {}}
    (results / "artifacts" / "tiny" / "tiny" / "suite.json").write_text(json.dumps(summary))
    assert 10_000 < len(description("tiny", results)) <= MAX_CHARACTERS


def test_a_suites_name_is_shown_as_it_is(tmp_path):
    assert "Suite \\*x\\*&lt;b>." in description("*x*<b>", tmp_path)


def test_the_outcome_is_in_the_first_line_and_plots_follow_of_overrides_above_their_table(results):
    for stem, plots in (("tiny", {"forest.a=1.png": "Change_"}), ("tiny.epochs=1", {})):
        (results / "tables" / f"{stem}.md").write_text(TABLE)
        (results / "artifacts" / "tiny" / stem).mkdir(parents=True)
        summary = {"found": f"*{stem}* wins", "plots": plots, "names": {}}
        (results / "artifacts" / "tiny" / stem / "suite.json").write_text(json.dumps(summary))
    first, plot, caption, *_ = (text := description("tiny", results)).split("\n\n")
    assert first.startswith(r"Suite tiny. \*tiny\* wins. Files of the results folder: ")
    assert plot == "![forest.a=1.png](ajax-api/2.0/mlflow-artifacts/artifacts/tiny/tiny/forest.a%3D1.png)"
    assert caption == r"Change\_"
    assert "\n\n### tiny, version 1\n\n\\*tiny.epochs=1\\* wins.\n\n| head |" in text


def test_a_damaged_summary_counts_as_none(results):
    (results / "artifacts" / "tiny" / "tiny").mkdir(parents=True)
    (results / "artifacts" / "tiny" / "tiny" / "suite.json").write_text("{")
    assert description("tiny", results).startswith("Suite tiny. Files of the results folder: ")
    assert row_names("tiny", results) == {}
