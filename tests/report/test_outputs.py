"""A table, page, plot or leaderboard is not replaced by one of fewer finished trials."""

import json
import re
from pathlib import Path

import bundles
import handmade
import pytest

from harness.errors import FewerTrialsError, StorageError
from harness.records import store
from harness.report import outputs
from harness.report.outputs import Trials

pytestmark = pytest.mark.system

COMMANDS = ("table", "report", "leaderboard")


@pytest.fixture
def project(tmp_path):
    """A folder with a suite of four trials, and its results: all are ok."""
    trials, contents = bundles.planned(tmp_path), bundles.contents_of(tmp_path)
    for spec in trials:
        bundles.keep(tmp_path / "results", bundles.record_of(spec, contents=contents), timed=False)
    return tmp_path


@pytest.fixture
def call(project, harness):
    """A function: a command's name, options -> what it did to the project."""

    def one(command: str, *options):
        suite = () if command == "leaderboard" else (project / "suite.yaml",)
        return harness(command, *suite, "--results", project / "results", *options)

    return one


def written(project: Path) -> dict[str, bytes]:
    """All that commands wrote for readers."""
    found = bundles.files(project / "results")
    return {path: content for path, content in found.items() if not path.startswith(("runs/", "mlflow"))}


def lose(project: Path, count: int = 1) -> None:
    """Remove the records of some trials."""
    for place in sorted((project / "results" / "runs" / "small").glob("*/record.json"))[:count]:
        place.unlink()


@pytest.mark.guards("plot-size")
@pytest.mark.parametrize("command", COMMANDS)
def test_one_file_says_of_how_many_trials_the_others_are_and_plots_say_it_to_readers(command, call, project):
    lose(project)
    assert call(command).code == 0
    files = written(project)
    (numbers,) = [json.loads(content) for path, content in files.items() if path.endswith(".json")]
    planned = 3 if command == "leaderboard" else 4  # the leaderboard knows no planned ones
    assert numbers == {"trials": {"ok": 3, "planned": planned, "invalid": 0}}
    assert all(b"3 ok of 4" in content for path, content in files.items() if path.startswith("plots/"))


@pytest.mark.guards("fuller-table-kept")
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_replaced_by_what_is_made_of_fewer_trials(command, call, project):
    assert call(command).code == 0
    before = written(project)
    lose(project)
    done = call(command)
    assert done.code == 1
    assert re.fullmatch(
        r"(warning: no plot .*\n)*"
        r"\S+ is not replaced: it is made of 4 finished trials, and the new one would be made of 3; nothing was "
        r"written; --overwrite replaces it\n",
        done.err,
    )
    assert written(project) == before
    assert call(command, "--overwrite").code == 0
    after = written(project)
    assert after.keys() <= before.keys()
    assert after != before


def test_a_report_that_would_not_be_written_is_refused_before_its_plots_are_drawn(call, project, monkeypatch):
    assert call("report").code == 0
    lose(project)
    monkeypatch.setattr("harness.report.figures.plots.draw", lambda *_, **__: pytest.fail("plots were drawn"))
    assert call("report").code == 1


@pytest.mark.parametrize("command", ["table", "leaderboard"])
def test_what_is_not_written_is_shown(command, call, project):
    assert call(command).code == 0
    lose(project)
    done = call(command)
    assert done.code == 1
    assert "| softmax" in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_made_of_as_many_trials_or_more_is_replaced(command, call, project):
    lose(project, 2)
    assert call(command).code == 0
    before = written(project)
    trials, contents = bundles.planned(project), bundles.contents_of(project)
    for spec in trials:
        bundles.keep(project / "results", bundles.record_of(spec, contents=contents), timed=False)
    assert call(command).code == 0
    assert written(project) != before
    for spec in trials:  # other numbers of as many trials
        changed = {"test_ppl": 99.0, "scored_test_tokens": 3.0}
        record = bundles.record_of(spec, contents=contents, metrics=changed)
        bundles.keep(project / "results", record, timed=False, scored=False)
    more = written(project)
    assert call(command).code == 0
    assert written(project) != more


@pytest.mark.parametrize("gone", ["md", "csv", "tex"])
def test_the_files_of_a_table_are_replaced_together_or_not_at_all(gone, call, project):
    assert call("table").code == 0
    (project / "results" / "tables" / f"small.{gone}").unlink()
    before = written(project)
    lose(project)
    assert call("table").code == 1
    assert written(project) == before


def test_a_plot_alone_keeps_page_and_plots_from_being_replaced(call, project):
    assert call("report").code == 0
    (project / "results" / "reports" / "small.html").unlink()
    for place in sorted((project / "results" / "plots" / "small").iterdir())[1:]:
        place.unlink()
    before = written(project)
    lose(project)
    done = call("report")
    assert done.code == 1
    assert "is not replaced: it is made of 4 finished trials, and the new one would be made of 3" in done.err
    assert written(project) == before


@pytest.mark.guards("table-of-unknown-size-kept")
@pytest.mark.parametrize("numbers", [None, "", "{}", "[3]", '{"trials": {"ok": 3}}', " " * 5_000 + "{}"])
def test_a_file_that_does_not_say_is_replaced_by_finished_suites_only(numbers, call, project):
    place = project / "results" / "tables" / "small.md"
    place.parent.mkdir(parents=True)
    place.write_text("my notes\n")
    if numbers is not None:  # damaged, or those of something else
        place.with_suffix(".json").write_text(numbers)
    before = written(project)
    lose(project)
    done = call("table")
    assert done.code == 1
    unknown = "it is not known of how many finished trials it is made, and the new one would be made of 3 of 4;"
    assert f"small.md is not replaced: {unknown} nothing was written; --overwrite replaces it" in done.err
    assert written(project) == before
    contents = bundles.contents_of(project)
    for spec in bundles.planned(project):
        bundles.keep(project / "results", bundles.record_of(spec, contents=contents), timed=False)
    assert call("table").code == 0
    assert place.read_text().startswith("# small, version 1")


@pytest.mark.parametrize("command", COMMANDS)
def test_what_says_that_a_trial_is_invalid_replaces_what_called_it_ok(command, project, call):
    assert call(command).code == 0
    before = written(project)
    place = sorted((project / "results" / "runs" / "small").glob("*/record.json"))[0]
    record = store.load(place.parent.parent, place.parent.name)
    store.save(record.model_copy(update={"status": "invalid", "message": "planted"}), place.parent.parent)
    assert call(command).code == 0
    assert written(project) != before


def test_of_a_refusal_nothing_is_removed_either(tmp_path):
    old, new, numbers = (tmp_path / name for name in ("old.svg", "small.html", "small.json"))
    outputs.write({new: b"5", old: b"5"}, Trials(5, 5))
    new.unlink()
    with pytest.raises(FewerTrialsError):
        outputs.write({new: b"4"}, Trials(4, 5), gone=[old])
    assert sorted(tmp_path.iterdir()) == [old, numbers]
    outputs.write({new: b"4"}, Trials(4, 5), gone=[old], overwrite=True)
    assert sorted(tmp_path.iterdir()) == [new, numbers]


def test_a_write_that_is_cut_off_leaves_no_number_that_is_too_small(tmp_path):
    table, blocked = tmp_path / "small.md", tmp_path / "small.csv"
    outputs.write({table: b"3"}, Trials(3, 5))
    blocked.mkdir()
    with pytest.raises(StorageError):
        outputs.write({table: b"4", blocked: b"4"}, Trials(4, 5))
    with pytest.raises(FewerTrialsError, match="made of 4 finished"):
        outputs.write({table: b"3"}, Trials(3, 5))


def test_failed_trials_are_not_finished_ones(call, project):
    assert call("table").code == 0
    (spec, *_) = bundles.planned(project)
    failed = handmade.record(spec=spec, status="error", message="no", weights_sha256=None)
    store.save(failed, store.runs_folder(project / "results", "small"))
    done = call("table")
    assert done.code == 1
    assert "1/2: 1 error" in done.out
