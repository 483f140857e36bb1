"""When an exclusive pass is due, of which trials, what is said of it, and that nothing of it fails a run."""

from types import SimpleNamespace

import handmade
import pytest

from harness import plan
from harness.execution import executors, inline, timed
from harness.execution.executors import Execution, Resources
from harness.execution.ray import tuner
from harness.execution.timed import time_rows
from harness.records import sidecars, store
from harness.records.sidecars import Timing
from harness.trial.task import Task

ONE = Resources(cpus=1, gpus=None)
HERE = "this processor"
DIGEST = "ab" * 32


class Place:
    """A suite of two heads and two seeds, records as a test wants them, and passes that only note whose turn it is."""

    def __init__(self, folder):
        path = folder / "suite.yaml"
        path.write_text(handmade.SMALL)
        self.trials = plan.load(path).trials
        self.runs = folder / "runs"
        self.passes, self.said, self.warned, self.routes = [], [], [], set()
        self.shared, self.sentences = False, []

    def finish(self, *numbers: int, status: str = "ok", device: str = HERE, weights_sha256: str = DIGEST) -> None:
        """Trials of these numbers have a record."""
        about = {"environment": handmade.environment(device=device), "status": status}
        about["weights_sha256"] = weights_sha256 if status == "ok" else None
        for number in numbers:
            store.save(handmade.record(spec=self.trials[number], **about), self.runs)

    def timing(self, trial: str, device: str = HERE) -> Timing:
        return Timing(
            trial=trial, weights_sha256=DIGEST, metrics={"train_ms_per_batch": 1.0}, batches=6, rounds=3,
            pass_id=str(len(self.passes)), device=device, threads=1, torch="2", commit="abc",
            taken=f"2026-01-02T03:04:{len(self.passes):02}+00:00", busy=1.5 if self.shared else 0.0, shared=self.shared,
        )  # fmt: skip

    def take(self, execution, records):
        self.passes.append([task.id for task in execution.tasks])
        self.routes |= {task.route for task in execution.tasks}
        return [self.timing(task.id) for task in execution.tasks], self.sentences

    def time(self, trials=None, address: str = "local", **changes) -> bool:
        trials = trials or self.trials
        about = {"data": self.runs.parent, "device": "cpu", "executor": "inline", **changes}
        tasks = [Task(spec=spec, suite="small", runs=self.runs, **about) for spec in trials]
        execution = Execution(tasks=tasks, resources=ONE, address=address)
        records, _ = store.load_all(self.runs, [spec.id for spec in trials])
        return time_rows(execution, records, SimpleNamespace(say=self.said.append, warn=self.warned.append))

    def timed(self) -> dict[str, Timing]:
        found, _ = store.load_all(self.runs, [spec.id for spec in self.trials])
        return sidecars.TIMING.load_all(self.runs, found)[0]

    def ids(self, *numbers: int) -> list[str]:
        return [self.trials[number].id for number in numbers]


@pytest.fixture
def place(tmp_path, monkeypatch):
    made = Place(tmp_path)
    monkeypatch.setattr(inline, "time_rows", made.take)
    monkeypatch.setattr(tuner, "time_rows", made.take)
    monkeypatch.setattr(timed.environment, "device_name", lambda device: HERE)
    monkeypatch.setattr(executors.routes, "chosen_route", lambda: "onednn")
    return made


def test_one_trial_of_each_row_is_timed_the_first_that_is_ok_once_all_have_a_record_and_only_once(place):
    # softmax under seeds 1 and 2, mos under seeds 1 and 2
    place.finish(0, status="diverged")
    place.finish(1, 2)
    assert not place.time()
    assert (place.passes, place.said, place.warned) == ([], [], [])
    place.finish(3)
    assert place.time()
    assert sorted(place.timed()) == sorted(place.ids(1, 2))
    place.finish(0)  # --retry-failed: a timing of any seed is the row's
    assert not place.time()
    assert place.passes == [place.ids(1, 2)]
    assert place.routes == {"onednn"}  # that of trials
    assert place.said == ["timing 2 models, one at a time ...", "timed 2 models in 3 rounds"]
    assert place.warned == []


def test_where_one_row_lacks_its_timing_all_are_timed_together(place):
    place.finish(0, 1, 2)
    assert place.time(place.trials[:2])  # of those that are chosen, all have a record
    place.finish(3)
    assert place.time()
    assert place.passes == [place.ids(0), place.ids(0, 2)]
    assert {timing.pass_id for timing in place.timed().values()} == {"2"}


@pytest.mark.parametrize("harm", ["torn", "of other weights", "of another device", "begun anew"])
def test_a_timing_that_does_not_count_is_made_good(place, harm):
    place.finish(0, 1, 2, 3)
    place.time()
    file = place.runs / place.ids(2)[0] / sidecars.TIMING.file
    if harm == "torn":
        file.write_bytes(file.read_bytes()[:-40])
    elif harm == "of other weights":
        place.finish(2, weights_sha256="cd" * 32)
        place.finish(3, weights_sha256="ef" * 32)
    elif harm == "of another device":
        for trial in place.ids(0, 2):
            sidecars.save_timing(place.timing(trial, device="another"), place.runs)
    assert place.time(fresh=harm == "begun anew")
    assert place.passes == [place.ids(0, 2)] * 2
    assert {timing.device for timing in place.timed().values()} == {HERE}


def test_rows_that_another_device_trained_are_not_timed_here_but_on_a_cluster_where_all_are_on_one_device(place):
    place.finish(0, 1, device="a GPU")
    place.finish(2, 3)
    place.time()
    assert place.passes == [place.ids(2)]
    assert place.said[0] == f"models trained on a GPU are not timed, because this device is {HERE}"
    for trial, device in zip(place.ids(0, 2), ("one", "two"), strict=True):
        sidecars.save_timing(place.timing(trial, device), place.runs)
    assert place.time(address="head:6379", executor="ray")
    assert place.passes[1:] == [place.ids(0, 2)]
    assert not place.time(address="head:6379", executor="ray")


def test_data_parallel_trials_are_not_timed_alone_and_one_sentence_says_so(place):
    train = place.trials[0].train.model_copy(update={"data_parallel": 2})
    place.trials = tuple(spec.model_copy(update={"train": train}) for spec in place.trials)
    place.finish(0, 1, 2, 3)
    assert (place.time(), place.passes) == (False, [])
    assert place.said == ["data-parallel trials are not timed alone: their times are those of their training"]


def test_a_shared_timing_is_reported_and_what_fails_in_a_pass_is_a_warning_each(place):
    place.shared, place.sentences = True, ["mos \x1b[31m could not be timed: MemoryError: no room"]
    place.finish(0, 1, 2, 3)
    assert place.time()
    assert place.said[1] == (
        "timed 2 models in 3 rounds; other programs use 1.5 cores, "
        "so the times are marked as shared; --timing measures them again"
    )
    (warning,) = place.warned
    assert warning.startswith("mos ")
    assert warning.endswith("could not be timed: MemoryError: no room")
    assert "\x1b" not in warning


@pytest.mark.parametrize("error", [RuntimeError("the worker died\nat once"), RuntimeError()])
def test_a_pass_that_fails_is_one_warning_and_no_failed_run(place, monkeypatch, error):
    def fails(*arguments):
        raise error

    monkeypatch.setattr(inline, "time_rows", fails)
    place.finish(0, 1, 2, 3)
    assert not place.time()
    (warning,) = place.warned
    assert warning.startswith(f"the rows are not timed: {type(error).__name__}")
    assert warning.endswith("; the same command tries again")
    assert place.timed() == {}
