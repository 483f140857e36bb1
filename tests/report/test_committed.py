"""What results/showcase holds: each committed record is of a planned trial, and tables and pages are what records give.

results/showcase/records has one file for a suite or for a trial: `<suite>.zip` or `<suite>.<trial>.zip`. Its folder
`shortened` has those of suites that were changed by --set, with the changes in their names: `<suite>.epochs=1.zip`, as
its table. Its folder `unfinished` has the finished trials of a suite whose other trials are still to be trained, so
that another machine can go on; there is no table of them.
"""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest
from stand_ins import planned_as_recorded

from harness import plan
from harness.exchange.copying import import_records
from harness.report import study, verdicts
from harness.report.figures import plots, style

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "results" / "showcase"
FILES = sorted((RESULTS / "records").glob("*.zip"))
SHORTENED = sorted(path.stem for path in (RESULTS / "records" / "shortened").glob("*.zip"))
UNFINISHED = sorted(path.stem for path in (RESULTS / "records" / "unfinished").glob("*.zip"))
SUITES = sorted({path.name.split(".")[0] for path in FILES})
TABLES = sorted(
    path.stem for path in (RESULTS / "tables").glob("*.csv") if (ROOT / f"suites/{path.stem}.yaml").exists()
)
SHAPES = ("mixtures", "heads", "corpora")
PAGES = sorted(path.stem for path in (RESULTS / "reports").glob("*.html"))
# Fingerprints of the harness of commits whose files were copied beside the .git folder of an older commit, on a lent
# machine, so that these records say "dirty".
COPIED = {
    "49a066e62a2891886e58eb6e56adec5eec1236ff9ccdd25db3da88705d28429f": "4025bfe",
    "240f6f672be36597b1db19c06722ef0c2231435c1237ca36eaee07f37ed11617": "b61012c",
}


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """Name of a suite -> its study, of the committed records, taken in as anybody would."""
    results = tmp_path_factory.mktemp("results")
    for path in FILES:
        import_records(path, results)
    suites = {name: planned_as_recorded(name, results, tmp_path_factory.mktemp(name)) for name in SUITES}
    return {name: study.load(suite, results, warn=refuse) for name, suite in suites.items()}


def refuse(sentence: str) -> None:
    """Fail at every warning, but for plots that would show nothing."""
    if not sentence.startswith("no plot "):
        pytest.fail(sentence)


def test_there_are_records_tables_and_pages():
    assert FILES
    assert set(PAGES) <= set(TABLES)
    assert TABLES == SUITES


@pytest.mark.parametrize("name", SUITES)
def test_every_committed_record_is_ok_certified_of_a_planned_trial_and_of_committed_code(name, studies):
    runs, suite = studies[name].evidence.runs, studies[name].suite
    tuning = {trial.id for trial in suite.tuning_trials}  # these may fail
    assert {path.parent.name for path in runs.glob("*/record.json")} == set(studies[name].records) | tuning
    for record in studies[name].records.values():
        assert (record.status, record.certificate is None) == ("ok", False)
        dirty = record.environment.commit.endswith("+") if record.code.dirty is None else record.code.dirty
        assert not dirty or record.code.harness in COPIED


def test_the_better_heads_are_the_same_whichever_control_is_the_baseline(studies):
    several = 0
    for name, found in studies.items():
        evidence, lines = found.evidence, found.findings.rows
        if found.suite.table.baseline is None:
            continue
        better = []
        for baseline in dict.fromkeys(line.planned.head.written for line in lines if line.is_control):
            table = found.suite.table.model_copy(update={"baseline": baseline})
            compared = verdicts.compare(lines, table, evidence)
            better.append({row.head for row, each in compared.items() if each.judged.word == "better"})
        several += len(better) > 1
        assert all(each == better[0] for each in better), name
    assert several >= 5


@pytest.mark.parametrize("name", UNFINISHED)
def test_records_of_an_unfinished_suite_are_of_trials_that_it_plans(name, tmp_path):
    import_records(RESULTS / "records" / "unfinished" / f"{name}.zip", tmp_path)
    suite = study.load(planned_as_recorded(name, tmp_path, tmp_path), tmp_path, warn=refuse).suite
    found = {path.parent.name for path in tmp_path.glob("runs/*/*/record.json")}
    assert found
    # with the points that were chosen; all of them: a file for the folder above
    assert found < {trial.id for trial in (*suite.tuning_trials, *suite.trials)}
    assert name not in SUITES


def is_committed(found: study.Study, name: str) -> None:
    """Compare the table of a study with that of results/showcase."""
    for form in ("md", "csv"):
        assert found.table(form) == (RESULTS / "tables" / f"{name}.{form}").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_the_committed_table_is_what_the_committed_records_give(name, studies):
    is_committed(studies[name], name)


@pytest.mark.parametrize("name", PAGES)
def test_every_number_of_the_committed_page_is_that_of_its_record(name, studies):
    found = studies[name]
    text = (RESULTS / "reports" / f"{name}.html").read_text(encoding="utf-8")
    for of, values in (("metric", found.records), ("timing", found.evidence.timings)):
        shown = set(re.findall(rf'data-trial="(\w+)" data-{of}="(\w+)" data-value="([^"]+)"', text))
        assert shown == {
            (trial, metric, str(value)) for trial, each in values.items() for metric, value in each.metrics.items()
        }


@pytest.mark.system
@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_what_the_committed_records_give_but_for_the_drawings(name, studies, monkeypatch):
    def without_drawings(text: str) -> str:
        return re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)  # strokes may change with matplotlib

    for module in (plots, style):
        monkeypatch.setattr(module, "svg_of", lambda *figure: "<svg></svg>\n")
    monkeypatch.setattr(style, "_saved", lambda *figure: b"")
    found = studies[name]
    found.write_report()
    made = (found.results / "reports" / f"{name}.html").read_text(encoding="utf-8")
    assert without_drawings(made) == without_drawings(
        (RESULTS / "reports" / f"{name}.html").read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("name", SHORTENED)
def test_the_committed_table_of_a_shortened_suite_is_what_its_records_give(name, tmp_path):
    suite, change = name.split(".", 1)
    read = plan.load(ROOT / f"suites/{suite}.yaml", (f"train.{change}",))
    import_records(RESULTS / "records" / "shortened" / f"{name}.zip", tmp_path)
    found = study.load(read, tmp_path, warn=refuse)
    assert {record.status for record in found.records.values()} == {"ok"}
    assert len(found.records) == len(list(found.evidence.runs.glob("*/record.json")))
    is_committed(found, name)


VIEWS = Path(__file__).with_name("views.json")  # suite -> view -> the first digits of the SHA-256 of its text


@pytest.mark.parametrize("name", SUITES)
def test_every_view_of_committed_records_is_as_it_was(name, studies):
    """A change of a view is one that a commit means: GOLDEN=write before the command of this test writes the hashes."""
    found = studies[name]
    views = {f"{shape} {form}": found.table(form, shape) for shape in SHAPES for form in ("md", "csv", "latex")}
    views |= {"wide": found.table("md", wide=True), "compact": found.table("latex", compact=True)}
    views["frame"] = found.frame().to_csv()
    project = str(found.suite.path.parent.parent)
    same_as_before(name, {view: text.replace(project, "PROJECT") for view, text in views.items()})


@pytest.mark.system
def test_the_leaderboard_of_committed_records_is_as_it_was(tmp_path, harness, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in FILES:
        import_records(path, tmp_path / "results")
    views = {"json": harness("leaderboard", "--all", "--json").out, "text": harness("leaderboard", "--all").out}
    same_as_before("leaderboard", views)


def same_as_before(name: str, views: dict[str, str]) -> None:
    """Compare the hashes of views with those that are stored."""
    found = {view: hashlib.sha256(text.encode()).hexdigest()[:16] for view, text in views.items()}
    stored = json.loads(VIEWS.read_text()) if VIEWS.exists() else {}
    if os.environ.get("GOLDEN") == "write":
        stored[name] = found
        VIEWS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    assert found == stored.get(name)
