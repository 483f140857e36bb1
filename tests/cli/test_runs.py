"""`harness runs`, also at the width of a terminal, and what `harness run` says at its end."""

import io
import json
import re

import pytest
from rich.console import Console

from harness.cli import records as views

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


def test_at_80_characters_the_columns_that_matter_are_whole():
    about = {"backbone": "lstm(d_model=200, num_layers=1)", "corpus": "embedded", "minutes": 41.33}
    about |= {"device": "AMD EPYC", "finished": "2026-11-22T03:03:00+00:00", "bytes": 3900}
    rows = [
        {"id": f"{seed:012}", "head": HEAD, "seed": seed, "status": status, "tuning": tuning, "test_ppl": ppl, **about}
        for seed, status, tuning, ppl in ((1, "ok", False, 101.0), (2, "diverged", False, None), (3, "ok", True, 103.0))
    ]
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    console.print(*views.table_of_trials(rows, 80), sep="\n")
    shown = [line.rstrip() for line in console.file.getvalue().splitlines()]
    (header,) = [line for line in shown if line.startswith("trial")]
    assert [name for name in MATTER if name in header] == list(MATTER)
    assert max(map(len, shown)) <= 80
    ends = (["1", "ok", "101.00", "41.33"], ["2", "diverged", "-", "41.33"], ["3", "ok, tuning", "103.00", "41.33"])
    for row, cells in zip(rows, ends, strict=True):
        (line,) = [line for line in shown if line.startswith(row["id"])]
        assert [cell.strip() for cell in line.split("  ") if cell][2:] == ["embedded", *cells]
