"""A suite from YAML, and records made by hand: no trial is run for a test of the tables."""

from dataclasses import replace

import handmade
import pytest

from harness import plan
from harness.records.record import TrialRecord
from harness.report.row_facts import RowFacts, rows, trial_facts

ENVIRONMENT = handmade.environment()
CODE = handmade.code()
TABLE = handmade.suite_text(heads="[softmax, {mos: {num_mixtures: [MIXTURES]}}]", seeds="[SEEDS]")
ALWAYS = {"unigram_test_ppl": 1100.0, "context_tokens": 7, "state_carried": 1}


def with_records(row: RowFacts, records: dict[int, TrialRecord]) -> RowFacts:
    """The row with other records, by seed."""
    by_id = {trial.id: records[trial.seed] for trial in row.trials if trial.seed in records}
    return replace(row, trials=trial_facts((trial.spec for trial in row.trials), by_id))


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


@pytest.fixture
def table_of(suite_of, record_of):
    """A function: numbers of heads and planned seeds -> a function: test perplexities by head, of seeds 1, 2 ... ->
    rows. A perplexity of None: the trial was not run; nan: it diverged. The first head is softmax.

    The rows are made once and given other records, because a simulation asks for thousands of tables.
    """

    def made_of(heads: int, seeds: int):
        listed = {"MIXTURES": range(2, heads + 1), "SEEDS": range(1, seeds + 1)}
        text = TABLE
        for name, numbers in listed.items():
            text = text.replace(name, ", ".join(map(str, numbers)))
        empty = rows(suite_of(text), {})
        ok = {trial.id: record_of(trial.spec) for row in empty for trial in row.trials}
        diverged = {trial.id: record_of(trial.spec, "diverged") for row in empty for trial in row.trials}

        def record(trial, ppl):
            if ppl != ppl:
                return diverged[trial.id]
            return ok[trial.id].model_copy(update={"metrics": {**ALWAYS, "test_ppl": ppl}})

        def filled(row, values):
            pairs = zip(row.trials, values, strict=False)
            return with_records(row, {trial.seed: record(trial, ppl) for trial, ppl in pairs if ppl is not None})

        def table(*ppl_by_head):
            return [filled(row, values) for row, values in zip(empty, ppl_by_head, strict=False)]

        return table

    return made_of


@pytest.fixture
def with_curve():
    """A function: row, validation perplexities by epoch, number of its trials (None: all), learning rates -> the row
    with this curve in the records of its first trials.
    """

    def make(row, valid, trials=None, lr=None):
        chosen = list(row.records)[:trials]
        changed = {seed: handmade.learned(row.records[seed], *valid, rates=lr) for seed in chosen}
        return with_records(row, {**row.records, **changed})

    return make
