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


def test_a_page_that_cannot_be_written_is_one_sentence(finished, harness):
    shutil.rmtree(finished / "results" / "reports", ignore_errors=True)
    (finished / "results" / "reports").write_text("a file")
    done = harness("report", "suites/tiny.yaml")
    assert done.code == 2
    assert "reports/tiny.html cannot be written" in done.err
