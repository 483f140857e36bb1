"""`harness runs`, also at the width of a terminal, and what `harness run` says at its end."""

import io
import json
import re

import pytest
from rich.console import Console

from harness.cli import records as views
from harness.report.history import SuiteHistory, TrialHistory

HEAD = "mos(num_mixtures=15, tie_weights=False)"  # 39 characters
MATTER = ("trial", "head", "corpus", "seed", "status", "test ppl", "minutes")


def test_runs_shows_each_suite_also_when_its_file_is_gone(finished, harness):
    (finished / "suites" / "tiny.yaml").unlink()
    done = harness("runs")
    assert (done.code, done.err) == (0, "")
    (row,) = [line for line in done.out.splitlines() if "tiny" in line]
    assert "4 ok" in row
    (suite,) = json.loads(harness("runs", "--json").out)["suites"]
    assert (suite["suite"], suite["records"], suite["interrupted"]) == ("tiny", {"ok": 4}, 0)
    found = (finished / "results" / "runs" / "tiny").glob("*/record.json")
    contents = [json.loads(place.read_text()) for place in found]
    assert suite["device_minutes"] == pytest.approx(sum(each["metrics"]["train_minutes"] for each in contents))
    assert suite["finished"] == max(each["environment"]["finished"] for each in contents)


def test_runs_of_a_suite_shows_its_trials(finished, harness):
    trials = json.loads(harness("runs", "tiny", "--json").out)["trials"]
    assert sorted(f"{trial['head']} {trial['seed']}" for trial in trials) == [
        "MoS 2 1",
        "MoS 2 2",
        "softmax 1",
        "softmax 2",
    ]
    out = harness("runs", "tiny").out
    assert all(trial["id"] in out and f"{trial['test_ppl']:.2f}" in out for trial in trials)


def test_runs_says_of_which_trials_there_are_no_token_scores(finished, harness):
    shown = json.loads(harness("runs", "tiny", "--json").out)["trials"]
    assert [trial["token_scores"] for trial in shown] == [True] * 4
    assert "no token scores" not in harness("runs", "tiny").out
    lost = sorted((finished / "results" / "runs" / "tiny").glob("*/test_nll.npz"))[0]
    lost.unlink()
    shown = json.loads(harness("runs", "tiny", "--json").out)["trials"]
    assert {trial["id"]: trial["token_scores"] for trial in shown} == {
        trial["id"]: trial["id"] != lost.parent.name for trial in shown
    }
    assert harness("runs", "tiny").out.count("no token scores") == 1


def test_runs_of_an_empty_folder_is_a_sentence(fresh, harness):
    done = harness("runs")
    assert (done.code, done.out, done.err) == (0, "results/runs holds no records: run a suite first\n", "")
    assert json.loads(harness("runs", "--json").out) == {"suites": []}
    assert harness("runs", "tiny").err == "results/runs holds no suite 'tiny'\n"


def test_a_run_ends_with_what_it_took(first_run):
    (line,) = [line for line in first_run.out.splitlines() if "device time" in line]
    span = r"\d+:\d\d:\d\d"
    assert re.fullmatch(
        rf"4 of 4 trials: 4 ok; wall time {span}; device time {span} \(training, summed over these trials\)", line
    )


def test_each_record_is_read_once(finished, harness, times_read):
    assert harness("runs", "tiny").code == 0
    assert set(times_read.values()) == {1}


@pytest.mark.parametrize(("given", "folder"), [((), "results/runs/<suite>"), (("tiny",), "results/runs/tiny")])
def test_runs_says_in_which_folder_the_records_are(finished, harness, given, folder):
    assert f"folder: {folder}\n" in harness("runs", *given).out


def trial(number: int, **changes) -> TrialHistory:
    about = {
        "id": f"{number:012d}",
        "head": HEAD,
        "backbone": f"lstm(d_model=200, num_layers={number})",
        "corpus": "embedded",
        "seed": number,
        "status": "ok",
        "test_ppl": 100.0 + number,
        "minutes": 41.33,
        "device": "AMD EPYC",
        "finished": "2026-11-22T05:03:00+02:00",
        "token_scores": number != 2,
        "bytes": 3900 * number,
    }
    return TrialHistory(**{**about, **changes})


def suite(name: str, devices: tuple[str, ...]) -> SuiteHistory:
    return SuiteHistory(
        suite=name,
        records={"ok": 142},
        interrupted=0,
        device_minutes=191.0,
        wall_minutes=117.0,
        finished="2026-11-22T05:03:00+02:00",
        devices=devices,
        bytes=4_700_000,
    )


def lines(parts, width: int | None) -> list[str]:
    """What a terminal of so many characters shows; None: a pipe."""
    console = Console(file=io.StringIO(), width=width or 160, force_terminal=width is not None, color_system=None)
    console.print(*parts, sep="\n")
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.fixture
def rows() -> list[TrialHistory]:
    return [trial(1), trial(2, status="diverged", test_ppl=None), trial(3, tuning=True)]


def test_at_80_characters_the_columns_that_matter_are_whole(rows):
    shown = lines(views.table_of_trials(rows, 80), 80)
    (header,) = [line for line in shown if line.startswith("trial")]
    assert header.split("  ")[0] == "trial"
    assert [name for name in MATTER if name in header] == list(MATTER)
    assert max(map(len, shown)) <= 80
    ends = (["1", "ok", "101.00", "41.33"], ["2", "diverged", "-", "41.33"], ["3", "ok, tuning", "103.00", "41.33"])
    for row, cells in zip(rows, ends, strict=True):
        (line,) = [line for line in shown if line.startswith(row.id)]
        assert [cell.strip() for cell in line.split("  ") if cell][2:] == ["embedded", *cells]


def test_what_is_the_same_is_said_once_and_what_has_no_room_is_named(rows):
    shown = lines(views.table_of_trials(rows, 80), 80)
    # two hours less than in the record's zone
    assert shown[0] == "finished (UTC): 2026-11-22 03:03; device: AMD EPYC"
    assert shown[-1] == "no room for: backbone, disk, token scores (a wider window and --json show them)"


@pytest.mark.parametrize("width", [None, 300])
def test_a_pipe_and_a_wide_window_have_all_columns(rows, width):
    shown = lines(views.table_of_trials(rows, width), width)
    (header,) = [line for line in shown if line.startswith("trial")]
    assert all(name in header for name in (*MATTER, "backbone", "disk", "token scores"))
    assert not any("no room" in line for line in shown)
    assert any("no token scores" in line for line in shown)


def test_the_list_of_suites_fits_80_characters_with_whole_names():
    names = ("ground_truth_pytorch", "embedded_mixtures")
    shown = lines(views.table_of_suites([suite(name, (f"a processor of {name}",)) for name in names], 80), 80)
    assert max(map(len, shown)) <= 80
    for name in names:
        (line,) = [line for line in shown if line.startswith(name)]
        assert all(cell in line for cell in ("142 ok", "3 h 11 min", "1 h 57 min"))
    assert any(line.startswith("no room for: ") and "devices" in line for line in shown)
