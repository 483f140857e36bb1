"""`harness run` and exclusive timing: once by default, again or not by option, made good after an interrupt."""

import json
import sys

import pytest
from commands import SUITE, record_files

from harness.trial import timing as clock

RUN = ("run", "suites/tiny.yaml", "--executor", "inline", "--no-tracking")


@pytest.fixture
def timing(finished, monkeypatch):
    """The finished suite, which now asks for timing, on a calm machine."""
    (finished / "suites" / "tiny.yaml").write_text(SUITE.replace("measure: {exclusive: false}\n", ""))
    monkeypatch.setattr(clock.environment.OtherWork, "cores", lambda self: 0.0)
    monkeypatch.setattr(clock, "SECONDS", 0.001)
    return finished


def timings(folder) -> dict[str, dict]:
    """Head -> content of its timing."""
    found = (folder / "results" / "runs" / "tiny").glob("*/timing.json")
    by_trial = {path.parent: json.loads(path.read_text()) for path in found}
    return {json.loads((at / "record.json").read_text())["spec"]["head"]["name"]: it for at, it in by_trial.items()}


@pytest.mark.needs("integrity")
def test_models_are_timed_once_and_their_records_stay_as_they_are(timing, harness, monkeypatch):
    before = record_files(timing)
    done = harness(*RUN)
    assert (done.code, done.err) == (0, "")
    lines = ["nothing to run: all 4 trials have a record", "timing 2 models, one at a time ..."]
    assert done.out.splitlines()[:3] == [*lines, "timed 2 models in 3 rounds"]
    first = timings(timing)
    assert sorted(first) == ["mos", "softmax"]
    assert len({each["passed"] for each in first.values()}) == 1
    assert all(each["metrics"]["train_ms_per_batch"] > 0 and not each["shared"] for each in first.values())
    assert record_files(timing) == before
    for module in ("ray", "harness.execution.ray.tuner", "mlflow"):
        monkeypatch.setitem(sys.modules, module, None)  # an import of it would raise
    again = harness("run", "suites/tiny.yaml")
    assert (again.code, "timing" in again.out) == (0, False)
    assert timings(timing) == first
    assert harness(*RUN, "--timing", "--shared").code == 0
    anew = timings(timing)
    assert {each["passed"] for each in anew.values()} != {each["passed"] for each in first.values()}
    assert all(each["shared"] for each in anew.values())


@pytest.mark.parametrize("how", ["the option", "the suite"])
def test_where_it_is_left_out_nothing_is_timed(timing, harness, how):
    options = ("--no-timing",) if how == "the option" else ("--set", "measure.exclusive=false")
    done = harness(*RUN, *options)
    assert (done.code, "timing" in done.out) == (0, False)
    assert timings(timing) == {}
