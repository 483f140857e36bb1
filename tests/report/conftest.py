"""A suite from YAML, and records made by hand: no trial is run for a test of the tables."""

import handmade
import pytest

from harness import plan
from harness.records.record import TrialRecord

ENVIRONMENT = handmade.environment()
CODE = handmade.code()
ALWAYS = {"unigram_test_ppl": 11.0, "context_tokens": 7, "state_carried": 1}


@pytest.fixture
def suite_of(tmp_path):
    """A function: the text of a suite file, overrides -> Suite, read from <tmp_path>/suites."""

    def load(text: str, *overrides: str):
        path = tmp_path / "suites" / "suite.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return plan.load(path, overrides)

    return load


@pytest.fixture
def record_of():
    """A function: trial, its metrics -> TrialRecord. Every ok record has the metrics that every trial has."""

    def make(trial, status="ok", message="", environment=None, code=CODE, **metrics: float):
        return TrialRecord(
            suite="suite",
            spec=trial,
            status=status,
            metrics={**ALWAYS, **metrics} if status == "ok" else metrics,
            curve=(),
            certificate=handmade.certificate() if status == "ok" else None,
            environment=ENVIRONMENT.model_copy(update=environment or {}),
            message=message,
            code=code,
        )

    return make
