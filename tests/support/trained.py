"""Trials of tests from a suite's text to their record, what happens to them on the way, and averaged weights."""

from contextlib import contextmanager
from itertools import count
from pathlib import Path

import handmade
import pytest
import torch
from disturbed import result

from harness import plan
from harness.machine.stop_request import Interrupted
from harness.plan.suite import Suite
from harness.records import store
from harness.records.record import TrialRecord
from harness.training.averaging import Averaging
from harness.training.step import EagerStep
from harness.trial.run import run


def loaded(folder: Path, text: str, *overrides: str) -> Suite:
    """The suite of a text, in a file in a folder."""
    (folder / "suites").mkdir(parents=True, exist_ok=True)
    (folder / "suites" / "tiny.yaml").write_text(text)
    return plan.load(folder / "suites" / "tiny.yaml", overrides)


def ran(spec, runs: Path, **task) -> TrialRecord:
    """The record of a trial that is run in this process."""
    return run(handmade.task(spec, runs, **task))


def outcome(record: TrialRecord) -> tuple:
    """All of a trial that is ok that must not depend on how it was run."""
    assert record.status == "ok", record.message
    return *result(record.model_dump(mode="json")), record.metrics["scored_test_tokens"]


@contextmanager
def before_steps(act):
    """Within it `act` is called before every training step, with the number of those that were begun."""
    step, begun = EagerStep.advance, count()

    def advance(self, *arguments):
        act(next(begun))
        return step(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EagerStep, "advance", advance)
        yield


@contextmanager
def killed_before_record():
    """Within it a trial ends when all is done but its record, which must happen."""

    def killed(record, runs):
        raise Interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            yield


class Halves(Averaging):
    """An averaging of weights: after every step half of the average and half of the weights."""

    def __init__(self, model, train):
        self.weights = list(model.parameters())
        self.average = [each.detach().clone() for each in self.weights]
        self.swaps = 0

    @torch.no_grad()
    def update(self):
        """See harness.training.averaging."""
        for average, weight in zip(self.average, self.weights, strict=True):
            average.lerp_(weight, 0.5)

    @torch.no_grad()
    def swap(self):
        """See harness.training.averaging."""
        self.swaps += 1
        for average, weight in zip(self.average, self.weights, strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)

    def state_dict(self):
        """See harness.training.averaging."""
        return {"average": self.average}

    def load_state_dict(self, state):
        """See harness.training.averaging."""
        for average, saved in zip(self.average, state["average"], strict=True):
            average.copy_(saved)
