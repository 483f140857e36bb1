"""A run is refused before it trains when its table would not replace the one that is there."""

import handmade
import pytest

import harness
from harness import plan
from harness.errors import FewerTrialsError
from harness.records import store
from harness.report import outputs
from harness.report.outputs import Trials

TUNED = handmade.changed(("epochs: 2", "epochs: 1"), ("seeds: [1, 2]", "seeds: [1, 2, 3]"))
TUNED += "tune: {epochs: 1, seed: 9, space: {train.lr: [0.005, 0.01]}}\n"


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """A function: a suite, the finished trials of its table, conditions -> the message of the refusal, or None. No
    trial is trained.
    """

    class Begun(Exception):
        pass

    def begin(*_):
        raise Begun

    monkeypatch.setattr("harness.execution.run_suite.run_trials", begin)

    def one(text: str, finished: int, only: tuple[str, ...] = (), **options) -> str | None:
        path, table = tmp_path / "small.yaml", tmp_path / "results" / "tables" / "small.md"
        path.write_text(text)
        outputs.write({table: b"# small\n"}, Trials(finished, finished), overwrite=True)
        more = {"results": tmp_path / "results", "executor": "inline", "tracking": False, **options}
        try:
            harness.run_suite(path, only=only, **more)
        except FewerTrialsError as refused:
            return str(refused)
        except Begun:
            return None
        raise AssertionError("neither refused nor begun")

    return one


@pytest.mark.parametrize(("text", "trials"), [(handmade.SMALL, 4), (TUNED, 6)], ids=["one stage", "tuned"])
def test_as_many_of_the_selected_trials_as_the_table_has_are_trained_and_fewer_are_not(attempt, text, trials):
    assert attempt(text, trials) is None
    refused = attempt(text, trials + 1)
    assert f"it is made of {trials + 1} finished trials, and the new one would be made of {trials};" in refused
    assert "nothing was trained; --results names another folder; --overwrite replaces it" in refused
    assert attempt(text, trials + 1, overwrite=True) is None
    half = trials // 2
    assert attempt(text, half, ("head=softmax",)) is None
    assert f"would be made of {half};" in attempt(text, half + 1, ("head=softmax",))


def test_a_trial_that_another_process_trains_again_counts(attempt, tmp_path):
    assert attempt(handmade.SMALL, 3, ("head=softmax",)) is not None
    again = plan.load(tmp_path / "small.yaml").trials[-1]
    place = tmp_path / "results" / "runs" / "small" / again.id / store.PREVIOUS  # its record was set aside
    place.parent.mkdir(parents=True)
    place.write_text("{}")
    assert attempt(handmade.SMALL, 3, ("head=softmax",)) is None
