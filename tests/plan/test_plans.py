"""What a suite is expanded to: names, controls, grids, lengths of training, as tests/golden/plans/ has it by hand."""

import golden
import jsonschema
import pytest

from harness.plan import load, select
from harness.plan.reader import read
from harness.plan.suite_file import suite_schema

GOLDEN = {path.stem: golden.read(f"plans/{path.stem}") for path in golden.FOLDER.glob("plans/*")}
CASES = [
    pytest.param(name, index, marks=pytest.mark.needs(case.get("needs")))
    for name in sorted(GOLDEN)
    for index, case in enumerate(GOLDEN[name]["cases"])
]
SCHEMA = jsonschema.Draft202012Validator(suite_schema())
OF_ROW = {
    "heads": lambda row: row.head.name,
    "backbones": lambda row: row.backbone.name,
    "corpora": lambda row: row.corpus.name,
    "rows": lambda row: f"{row.corpus.spec} {row.backbone.spec} {row.head.spec}",
    "params": lambda row: list(row.params),
    "epochs": lambda row: row.train.epochs,
    "widths": lambda row: row.backbone.spec.params.get("d_model"),
    "sizes": lambda row: row.size,
    "schedules": lambda row: str(row.train.schedule.way),
    "workers": lambda row: row.train.data_parallel,
    "seeds": lambda row: [trial.seed for trial in row.trials],
    "controls": lambda row: row.is_control,
}
OF_SUITE = {
    "name": lambda suite: suite.name,
    "baseline": lambda suite: suite.table.baseline,
    "trials": lambda suite: [str(trial) for trial in suite.trials],
    "points": lambda suite: [[each.point for each in row.candidates] for row in suite.tuned_rows],
    "budgets": lambda suite: [suite.tuning_budget, suite.table_budget],
    "overrides": lambda suite: [list(each) for each in suite.overrides],
    "notes": lambda suite: [each.text for each in suite.notes],
    "control_notes": lambda suite: list(suite.control_notes),
}


def changed(text: str, change: dict[str, str]) -> str:
    for old, new in change.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(("name", "index"), CASES)
def test_each_suite_fits_the_schema_and_is_expanded_as_it_is_written_beside_it(name, index, write, wide_heads, layered):
    base, case = GOLDEN[name]["base"], GOLDEN[name]["cases"][index]
    path = write(changed(base, case.get("change", {})) + case.get("add", ""))
    suite = load(path, tuple(case.get("set", ())))
    assert list(SCHEMA.iter_errors(read(path)[0])) == []
    if "only" in case:
        chosen = select(suite.trials, tuple(case["only"]), suite)
        found = [f"{trial.backbone.params['d_model']} {trial.head} {trial.seed}" for trial in chosen]
        assert found == case["is"]["chosen"]
        return
    for fact, expected in case["is"].items():
        found = OF_SUITE[fact](suite) if fact in OF_SUITE else list(map(OF_ROW[fact], suite.rows))
        assert (fact, found) == (fact, expected)
    if "as" in case:
        other = load(write(changed(base, case["as"])))
        assert [each.id for each in suite.possible_trials] == [each.id for each in other.possible_trials]
