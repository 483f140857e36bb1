"""Executors: trials in this process, the route of products that all trials get, and the options of a run."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.execution import executors, inline
from harness.execution.executors import Execution, Resources, RunOptions, repeated, run_trials
from harness.records import store

ONE = Resources(cpus=1, gpus=0.0)


@pytest.fixture(scope="module")
def ran(suite, tasks, place):
    """The six trials run once: (Suite, folder of the records, events)."""
    events = []
    inline.execute(Execution(tasks=tasks(suite.trials, "inline", "inline"), resources=ONE), events.append)
    return suite, place / "inline", events


def test_every_record_says_how_its_trial_was_run(ran):
    suite, runs, _ = ran
    found, warnings = store.load_all(runs, [trial.id for trial in suite.trials])
    assert (warnings, {record.status for record in found.values()}) == ([], {"ok"})
    environment = found[suite.trials[0].id].environment
    assert (environment.executor, environment.threads, environment.shared) == ("inline", 1, False)


def test_trials_run_one_after_the_other_with_progress_at_every_epoch_and_the_saved_record_last(ran):
    suite, runs, events = ran
    # 400 tokens in 4 columns of 100: 99 targets in segments of 7 -> 15 steps an epoch
    for trial in suite.trials:
        own = [event for event in events if event.spec.id == trial.id]
        first = events.index(own[0])
        assert events[first : first + len(own)] == own
        assert [event.kind for event in own if event.kind != "progress"] == ["started", "finished"]
        assert own[-1].record == store.load(runs, trial.id)
        reports = [event.progress for event in own[1:-1]]
        assert [p.epoch for p in reports if p.step == p.steps] == [1, 2]
        assert {(p.epochs, p.steps) for p in reports} == {(2, 15)}
    assert [event.spec.id for event in events if event.kind == "started"] == [trial.id for trial in suite.trials]


def test_what_does_not_fit_the_machine_is_refused_before_anything_starts(suite, tasks, place):
    first, events = suite.trials[0], []
    tf32 = first.model_copy(update={"train": first.train.model_copy(update={"precision": "tf32"})})
    with pytest.raises(ExecutionError, match=r"train\.precision is tf32, which only a GPU has"):
        inline.execute(Execution(tasks=tasks([first, tf32], "unfit", "inline"), resources=ONE), events.append)
    assert events == []
    assert not (place / "unfit").exists()


@pytest.mark.needs("tracking")
@pytest.mark.parametrize(
    ("device", "gpus", "available", "asked"),
    [
        ("cpu", None, True, 1),
        ("auto", None, False, 1),
        ("auto", 0.2, True, 0),
        ("auto", 0.0, True, 1),  # no share of the GPU: the CPU
    ],
)
def test_the_route_is_chosen_once_for_trials_on_the_cpu(
    device, gpus, available, asked, suite, tasks, monkeypatch, tmp_path
):
    from harness.tracking.sync import Tracker

    calls, handed = [], []
    monkeypatch.setattr(executors.routes, "chosen_route", lambda: calls.append(1) or "onednn")
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    monkeypatch.setattr(inline, "execute", lambda execution, on_event: handed.append(execution.tasks))
    given = tasks(suite.trials, "driven", "inline", device=device, runs=tmp_path / "runs")
    execution = Execution(tasks=given, resources=Resources(cpus=1, gpus=gpus))
    run_trials(execution, print, Tracker(None, print))
    assert len(calls) == asked
    assert handed == [[replace(task, route="onednn" if asked else "default") for task in given]]


RESULTS = Path("results")


def test_how_and_where_trials_run_is_repeated_and_which_ones_is_not():
    which = {"overrides": ("train.epochs=1",), "only": ("head=mos",), "retry_failed": True}
    where = {"executor": "inline", "device": "cpu", "cpus_per_trial": 2, "gpus_per_trial": 0.5, "tracking": False}
    options = RunOptions(**where, **which, shared=True)
    assert repeated(options, Path("there"), Path("texts")) == [
        *("--executor", "inline", "--device", "cpu", "--cpus-per-trial", "2", "--gpus-per-trial", "0.5"),
        *("--no-tracking", "--shared", "--results", "there", "--data", "texts"),
    ]
    assert repeated(RunOptions(address="ray://host:1"), RESULTS, DEFAULT_DATA) == ["--address", "ray://host:1"]
    jobs = RunOptions(executor="slurm", slurm=("--account=me", "--comment=two words"))
    assert repeated(jobs, RESULTS, DEFAULT_DATA) == [
        *("--executor", "slurm", "--slurm", "--account=me '--comment=two words'")
    ]
    assert repeated(RunOptions(), RESULTS, DEFAULT_DATA) == []  # the usual options and folders


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"executor": "dask"}, "there is no executor 'dask'; there are: ray, inline, slurm"),
        ({"executor": "inline", "slurm": ("--time=1",)}, "are for the jobs of --executor slurm: add it"),
        ({"executor": "slurm", "timing": True}, "--timing cannot be used with --executor slurm: other jobs may run"),
        ({"force": True, "keep": True}, "use only one of the two"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, sentence):
    with pytest.raises(ExecutionError, match=sentence):
        RunOptions(**options)


@pytest.mark.parametrize(
    ("lacks", "refused", "warned"),
    [
        (("it has no locks", ""), "cannot hold records: it has no locks; name a folder on a local disk with --res", []),
        (("", "a folder cannot be synced"), "", ["a folder cannot be synced on the file system of "]),
        (("", ""), "", []),
    ],
)
def test_a_folder_is_refused_where_records_could_be_lost(lacks, refused, warned, tmp_path, monkeypatch):
    monkeypatch.setattr(executors.file_systems, "lacks", lambda folder: lacks)
    said = []
    with pytest.raises(ExecutionError, match=refused) if refused else nullcontext():
        executors.check_folder(tmp_path / "runs", said.append)
    assert [text[: len(begin)] for text, begin in zip(said, warned, strict=True)] == warned
