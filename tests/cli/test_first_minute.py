"""What a new user meets: the end of a run, a copied suite, a table without records, the documentation."""

import shlex
from pathlib import Path

import commands
import pytest

from harness import bundled


@pytest.mark.needs("conformance", "integrity", "tracking")
def test_a_run_ends_with_what_was_found_the_table_and_the_next_commands(first_run):
    assert (first_run.code, first_run.err) == (0, "")
    markdown = (first_run.folder / "results" / "tables" / "tiny.md").read_text()
    assert markdown in first_run.out
    assert commands.table_rows(markdown) == {"softmax": "2/2", "MoS 2": "2/2"}
    lines = first_run.out.splitlines()
    (found,) = [line for line in lines if "Lowest mean test perplexity" in line]
    assert "softmax" in found
    after = lines[lines.index(found) :]
    assert any("results/tables/tiny.md" in line for line in after)
    for command in ("report suites/tiny.yaml", "ui tiny", "new head NAME"):
        assert any(f"harness {command}" in line for line in after), command


def test_a_copied_suite_with_the_old_name_is_refused_with_what_to_rename(fresh, harness):
    (fresh / "suites" / "mine.yaml").write_text(commands.SUITE.replace("seeds: [1, 2]", "seeds: [3]"))
    done = harness("run", "mine")
    assert done.code == 2
    assert "suites/mine.yaml:1:" in done.err
    assert "suites/tiny.yaml" in done.err
    assert "rename it: mine" in done.err
    assert not (fresh / "results").exists()


@pytest.mark.needs("integrity")
def test_a_table_without_records_names_the_import_of_the_committed_ones(fresh, harness):
    done = harness("table", "ground_truth_ngrams")
    assert done.code == 2  # nothing was written
    (warning,) = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    (shown,) = shlex.split(warning.rpartition("harness import ")[2])  # in quotes where its path has spaces
    assert (archive := Path(shown)) == bundled("results/showcase") / "records" / "ground_truth_ngrams.zip"
    assert harness("import", archive).code == 0
    assert harness("table", "ground_truth_ngrams").err == ""


def test_the_pages_of_the_documentation_are_listed_and_printed(fresh, harness):
    listed = harness("docs").out.splitlines()
    written = [page.stem for page in bundled("docs").glob("*.md")]
    assert [line.split()[0] for line in listed] == sorted([*written, "components", "metrics", "suite_keys"])
    assert "- `num_mixtures" in harness("docs", "components").out
    assert harness("docs", "tables").out.strip() == (bundled("docs") / "tables.md").read_text(encoding="utf-8").strip()


def test_the_name_of_a_bundled_suite_is_refused_likewise_and_an_equal_copy_is_not(fresh, harness):
    quickstart = (bundled("suites") / "quickstart.yaml").read_text(encoding="utf-8")
    copy = fresh / "suites" / "copy.yaml"
    copy.write_text(quickstart, encoding="utf-8")
    assert harness("plan", "copy").code == 0
    copy.write_text(f"{quickstart}\n# mine\n", encoding="utf-8")
    assert str(bundled("suites") / "quickstart.yaml") in harness("plan", "copy").err
