"""`python -m harness.benchmarks.scale`: synthetic trials that count as finished, and what commands cost on them."""

import pytest

from harness.benchmarks import scale
from harness.benchmarks.scale import EPOCHS, ROWS, make
from harness.records import sidecars, store


def test_the_synthetic_trials_are_finished_and_all_beside_them_verifies(tmp_path):
    suite = make(tmp_path, 2 * ROWS)
    runs = store.runs_folder(tmp_path / "results", "scale")
    found, warnings = store.load_all(runs, [trial.id for trial in suite.trials])
    assert (len(found), warnings) == (40, [])
    assert {len(record.curve) for record in found.values()} == {EPOCHS}
    timed, warnings = sidecars.TIMING.load_all(runs, found)
    assert (len(timed), warnings) == (ROWS, [])  # one of each row
    assert all(sidecars.TOKEN_NLL.load(runs, record) is not None for record in found.values())


def test_only_whole_rows_are_made(tmp_path):
    with pytest.raises(ValueError, match="50 trials are not 20 rows"):
        make(tmp_path, 50)


def test_a_command_is_measured():
    measured = scale.measure([ROWS], ["leaderboard"])
    (cost,) = measured.costs
    assert (cost.command, cost.trials) == ("leaderboard", ROWS)
    assert cost.processor_seconds > 0
    assert cost.peak_mib > 50
    ((_, row),) = measured.tables()
    assert row[:2] == ["leaderboard", "20"]


def test_a_command_that_fails_is_an_error_with_its_last_line(tmp_path, monkeypatch):
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho one >&2\necho 'the last line' >&2\nexit 2\n")
    failing.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(failing))
    with pytest.raises(RuntimeError, match=r"^harness plan on 20 trials: the last line$"):
        scale._run("plan", tmp_path, 20)
