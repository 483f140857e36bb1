"""What results/ holds of the suite of eight seeds: table, page and a sentence of the README agree with its records."""

import re
from pathlib import Path

import pytest

from harness import plan
from harness.exchange.importer import import_records
from harness.report import study

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "results"
NAME = "embedded_mixtures"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The committed records, taken in as anybody would."""
    results = tmp_path_factory.mktemp("results")
    import_records(RESULTS / "records" / f"{NAME}.zip", results)
    return study.load(plan.load(ROOT / "suites" / f"{NAME}.yaml"), results, warn=pytest.fail)


def lasting(text: str) -> str:
    """Without the note that changes with every change of the harness' own code."""
    return re.sub(r"\n[^\n]*own code has changed: [^\n]*", "", text)


def test_all_planned_trials_are_there_and_ok_and_each_row_was_timed_alone(found):
    assert [found.records[trial.id].status for trial in found.suite.trials] == ["ok"] * 32
    timed = [timing for timing in found.evidence.timings.values() if not timing.shared]
    assert len(timed) == 4
    assert len({timing.pass_id for timing in timed}) == 1


@pytest.mark.parametrize(("form", "ending"), [("md", "md"), ("csv", "csv"), ("latex", "tex")])
def test_the_committed_table_is_what_the_committed_records_give(form, ending, found):
    committed = (RESULTS / "tables" / f"{NAME}.{ending}").read_text(encoding="utf-8")
    assert lasting(found.table(form)) == lasting(committed)


def test_every_number_of_the_committed_page_is_that_of_its_record(found):
    text = (RESULTS / "reports" / f"{NAME}.html").read_text(encoding="utf-8")
    shown = set(re.findall(r'data-trial="(\w+)" data-metric="(\w+)" data-value="([^"]+)"', text))
    assert shown == {
        (trial, name, str(value)) for trial, record in found.records.items() for name, value in record.metrics.items()
    }
    timed = set(re.findall(r'data-trial="(\w+)" data-timing="(\w+)" data-value="([^"]+)"', text))
    assert timed == {
        (trial, name, str(value))
        for trial, timing in found.evidence.timings.items()
        for name, value in timing.metrics.items()
    }


def test_the_committed_page_is_what_the_committed_records_give_but_for_the_drawings(found):
    def told(text: str) -> str:
        return re.sub(r"<svg.*?</svg>", "", lasting(text), flags=re.DOTALL)  # strokes may change with matplotlib

    found.write_report()
    made = (found.results / "reports" / f"{NAME}.html").read_text(encoding="utf-8")
    assert told(made) == told((RESULTS / "reports" / f"{NAME}.html").read_text(encoding="utf-8"))


def test_what_the_readme_says_of_single_runs_is_so(found):
    ppl = {(str(t.head), t.seed): found.records[t.id].metrics["test_ppl"] for t in found.suite.trials}
    two = "mos(num_mixtures=2, dropout=0.2)"
    gaps = [100 * (ppl[two, a] / ppl["softmax", b] - 1) for a in range(1, 9) for b in range(1, 9)]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"anything between {min(gaps):.1f} and {max(gaps):.0f} %; eight pairs of one seed" in readme
