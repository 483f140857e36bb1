"""Executors: the route of products is chosen once, before trials start, and handed to every trial."""

from dataclasses import replace

import pytest

from harness.execution import executors, inline
from harness.execution.executors import Execution, Resources, run_trials
from harness.tracking.sync import Tracker


@pytest.mark.parametrize(
    ("device", "gpus", "available", "asked"),
    [
        *[("cpu", None, False, 1), ("cpu", None, True, 1), ("auto", None, False, 1), ("auto", 0.2, True, 0)],
        *[("auto", 0.0, True, 1), ("cuda", None, True, 0)],  # no share of the GPU: the CPU
    ],
)
def test_the_route_is_chosen_once_for_trials_on_the_cpu(
    device, gpus, available, asked, suite, tasks, monkeypatch, tmp_path
):
    calls, handed = [], []
    monkeypatch.setattr(executors.products, "chosen_route", lambda: calls.append(1) or "onednn")
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    monkeypatch.setattr(inline, "execute", lambda execution, on_event: handed.append(execution.tasks))
    given = tasks(suite.trials, "driven", "inline", device=device, runs=tmp_path / "runs")
    execution = Execution(tasks=given, resources=Resources(cpus=1, gpus=gpus))
    run_trials(execution, print, Tracker(None, print))
    assert len(calls) == asked
    assert handed == [[replace(task, route="onednn" if asked else "default") for task in given]]
