"""`harness runs`, and what `harness run` says at its end."""

import json
import re

import pytest

from harness import bundled


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
        "mos(num_mixtures=2) 1",
        "mos(num_mixtures=2) 2",
        "softmax 1",
        "softmax 2",
    ]
    out = harness("runs", "tiny").out
    assert all(trial["id"] in out and f"{trial['test_ppl']:.2f}" in out for trial in trials)


def test_runs_shows_how_large_each_trial_and_the_suite_is(finished, harness):
    runs = finished / "results" / "runs" / "tiny"
    for trial in json.loads(harness("runs", "tiny", "--json").out)["trials"]:
        assert trial["bytes"] == sum(place.stat().st_size for place in (runs / trial["id"]).iterdir())
        assert f"{trial['bytes'] / 1000:.1f} kB" in harness("runs", "tiny").out
    (suite,) = json.loads(harness("runs", "--json").out)["suites"]
    assert suite["bytes"] == sum(place.stat().st_size for place in runs.rglob("*") if place.is_file())


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


def test_runs_of_an_unknown_suite_names_the_nearest(finished, harness):
    done = harness("runs", "tinny")
    assert (done.code, done.out) == (2, "")
    assert done.err == "results/runs holds no suite 'tinny'; did you mean 'tiny'? (there are: tiny)\n"
    assert harness("runs", "../runs/tiny").code == 2


def test_runs_of_an_empty_folder_is_a_sentence(fresh, harness):
    done = harness("runs")
    assert (done.code, done.out, done.err) == (0, "results/runs holds no records: run a suite first\n", "")
    assert json.loads(harness("runs", "--json").out) == {"suites": []}
    assert harness("runs", "tiny").err == "results/runs holds no suite 'tiny'\n"


def test_runs_warns_of_a_damaged_record_and_does_not_count_it(finished, harness):
    place = sorted((finished / "results" / "runs" / "tiny").glob("*/record.json"))[0]
    place.write_text("{")
    done = harness("runs", "--json")
    assert json.loads(done.out)["suites"][0]["records"] == {"ok": 3}
    assert done.err.startswith(f"warning: {place}: ")
    assert done.err.count("\n") == 1


def test_a_run_ends_with_what_it_took(first_run):
    (line,) = [line for line in first_run.out.splitlines() if "device time" in line]
    span = r"\d+:\d\d:\d\d"
    assert re.fullmatch(
        rf"4 of 4 trials: 4 ok; wall time {span}; device time {span} \(training, summed over these trials\)", line
    )


def test_records_by_other_source_that_behaves_alike_are_said(fresh, harness):
    # trained at 173434421dc9, before heads/softmax.py got its options softcap and compat
    archive = bundled("results/showcase") / "records" / "ground_truth_pytorch.6ef45baa5936.zip"
    assert harness("import", archive).code == 0
    said = "1 record by other source of heads/softmax.py, which behaves alike"
    assert said in harness("runs", "ground_truth_pytorch").out.splitlines()


@pytest.mark.parametrize(("given", "folder"), [((), "results/runs/<suite>"), (("tiny",), "results/runs/tiny")])
def test_runs_says_in_which_folder_the_records_are(finished, harness, given, folder):
    assert f"folder: {folder}\n" in harness("runs", *given).out
