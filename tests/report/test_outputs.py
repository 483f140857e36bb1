"""Tables, plots, pages and the leaderboard are written again from the records that there are; without any, none is."""

import bundles
import pytest

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


def written(project) -> dict[str, bytes]:
    """All that commands wrote for readers."""
    found = bundles.files(project / "results")
    return {path: content for path, content in found.items() if not path.startswith(("runs/", "mlflow"))}


def lose(project, count: int) -> None:
    """Remove the records of some trials."""
    for place in sorted((project / "results" / "runs" / "small").glob("*/record.json"))[:count]:
        place.unlink()


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_made_of_fewer_trials_replaces_what_is_there(command, call, project):
    assert call(command).code == 0
    before = written(project)
    lose(project, 1)
    assert call(command).code == 0
    after = written(project)
    assert after != before
    assert after.keys() <= before.keys()  # a plot that would show nothing goes


@pytest.mark.parametrize("command", COMMANDS)
def test_without_any_record_nothing_is_written(command, call, project):
    assert call(command).code == 0
    before = written(project)
    lose(project, 4)
    done = call(command)
    assert done.code == 2
    assert "no record" in done.err
    assert written(project) == before
