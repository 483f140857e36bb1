"""`harness report`: where things are, what is refused, what a second run leaves alone."""

import shutil

import commands
import pytest

pytestmark = pytest.mark.system
KINDS = ["learning_curves", "perplexity_by_parameters", "perplexity_by_time"]


def test_report_writes_the_plots_and_the_page_and_says_where(finished, harness):
    done = harness("report", "suites/tiny.yaml")
    assert done.code == 0
    assert "page: results/reports/tiny.html" in done.out
    assert "plots: results/plots/tiny (" in done.out
    names = {path.name for path in (finished / "results" / "plots" / "tiny").iterdir()}
    assert {f"{kind}.{form}" for kind in KINDS for form in ("svg", "png")} <= names
    text = (finished / "results" / "reports" / "tiny.html").read_text()
    for trial in commands.record_files(finished):
        assert f'data-trial="{trial}"' in text
    assert str(finished) not in text
    before = commands.files(finished)
    assert harness("report", "suites/tiny.yaml").code == 0
    assert commands.files(finished) == before


def test_report_only_is_of_those_rows_in_files_of_its_own(finished, harness):
    done = harness("report", "suites/tiny.yaml", "--only", "head=mos")
    assert done.code == 0
    (place,) = (finished / "results" / "reports").glob("*.html")
    assert place.name.startswith("tiny.only-")
    text = place.read_text()
    assert "<h1>tiny, version 1; ONLY head=mos</h1>" in text
    chosen = {trial["id"] for trial in commands.planned(harness, "--only", "head=mos")}
    others = {trial["id"] for trial in commands.planned(harness)} - chosen
    assert all(f'data-trial="{trial}"' in text for trial in chosen)
    assert not any(f'data-trial="{trial}"' in text for trial in others)


def test_a_page_that_cannot_be_written_is_one_sentence(finished, harness):
    shutil.rmtree(finished / "results" / "reports", ignore_errors=True)
    (finished / "results" / "reports").write_text("a file")
    done = harness("report", "suites/tiny.yaml")
    assert done.code == 2
    assert "reports/tiny.html cannot be written" in done.err
