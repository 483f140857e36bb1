"""`harness runs`, and what `harness run` says at its end."""

import json

import pytest


def test_runs_shows_each_suite_also_when_its_file_is_gone(finished, harness):
    (finished / "suites" / "tiny.yaml").unlink()
    done = harness("runs")
    assert (done.code, done.err) == (0, "")
    (row,) = [line for line in done.out.splitlines() if "tiny" in line]
    assert "4 ok" in row
    assert "folder: results/runs/<suite>\n" in done.out
    (suite,) = json.loads(harness("runs", "--json").out)["suites"]
    assert (suite["suite"], suite["trials"]) == ("tiny", {"ok": 4})
    found = (finished / "results" / "runs" / "tiny").glob("*/record.json")
    contents = [json.loads(place.read_text()) for place in found]
    assert suite["device_minutes"] == pytest.approx(sum(each["metrics"]["train_minutes"] for each in contents))
    assert suite["finished"] == max(each["environment"]["finished"] for each in contents)
    lines = [line.split() for line in harness("runs", "tiny").out.splitlines()]
    for each in contents:
        cells = next(cells for cells in lines if each["spec"]["id"] in cells)
        assert {f"{each['metrics']['test_ppl']:.2f}", f"{each['metrics']['train_minutes']:.2f}"} <= set(cells)


def test_runs_of_an_empty_folder_is_a_sentence(fresh, harness):
    done = harness("runs")
    assert (done.code, done.out, done.err) == (0, "results/runs holds no records: run a suite first\n", "")
    assert json.loads(harness("runs", "--json").out) == {"suites": []}
