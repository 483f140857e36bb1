"""The table of a diagnostic: means over the seeds that have a result, lower bounds, and what is missing."""

import handmade
import pytest
from bundles import diagnose, planned, record_of

from harness import plan
from harness.diagnostics import diagnosed
from harness.diagnostics.catalogue import DIAGNOSTICS
from harness.diagnostics.diagnosed import gathered
from harness.records import store
from harness.report import table_forms

SPECTRUM = DIAGNOSTICS["spectrum"]


def spectrum(press: int, *, exact: bool) -> dict[str, object]:
    """What is stored of a spectrum."""
    part = {"values": [4.0, 2.0, 1.0], "limit": 1e-7, "press": press, "press_is_exact": exact}
    part |= {"effective": [1, 2, 3], "entropy": 2.5}
    about = {"contexts": 900, "vocabulary": 12, "bound": None, "way": "gram"}
    return {**about, "raw": part, "centred": {**part, "press": press - 1, "press_is_exact": True}}


@pytest.fixture
def evidence(tmp_path):
    """A suite of softmax and mos with two seeds each: mos has two results, of softmax one seed is refused."""
    softmax, other, *mos = planned(tmp_path, handmade.SMALL)
    records = [record_of(trial) for trial in (softmax, other, *mos)]
    for record, press in zip(records[2:], (3, 6), strict=True):
        diagnose(tmp_path, record, diagnostic="spectrum", content=spectrum(press, exact=press == 3))
    diagnose(tmp_path, records[0], diagnostic="spectrum", content={}, refused="head softmax gives a word probability 0")
    suite = plan.load(tmp_path / "suite.yaml")
    return handmade.evidence(suite, records, runs=store.runs_folder(tmp_path, "small"))


def built(evidence):
    (of,) = gathered(evidence, [SPECTRUM])
    return diagnosed.build(evidence, of)


def cells(table, line: int) -> dict[str, str]:
    return {column.name: cell.text for column, cell in zip(table.columns, table.lines[line].cells, strict=True)}


def test_a_mean_over_seeds_with_its_deviation(evidence):
    found = cells(built(evidence), 1)
    # 3 and 6: mean 4.5, standard deviation 3 / sqrt(2) = 2.12
    assert found["Press rank"] == "≥ 4 ± 2"
    assert found["centred: Press rank"] == "4 ± 2"
    assert found["entropy rank"] == "2.5 ± 0.0"
    assert (found["bound"], found["n"]) == ("-", "2/2")
    header, _, mos = table_forms.csv(built(evidence)).splitlines()  # numbers of files are not rounded
    of = dict(zip(header.split(","), mos.split(","), strict=True))
    assert (of["Press rank"], of["Press rank mark"], of["entropy rank"]) == ("4.5", "≥", "2.5")
    assert r"$\geq$ 4 $\pm$ 2" in table_forms.latex(built(evidence))


def test_a_row_without_a_result_is_empty_and_a_refusal_is_a_note(evidence):
    table = built(evidence)
    found = cells(table, 0)
    assert {found[figure.name] for figure in SPECTRUM.figures} == {"-"}
    assert found["n"] == "1/2"
    notes = " ".join(table.notes)
    for part in (
        "No result of softmax: head softmax gives a word probability 0.",
        "Contexts: 900 scored positions of the validation split",
        "Computed on a processor, 1 thread(s), torch 2, harness 0.1.0 at abc.",
        "Rank and quality correlate weakly.",
    ):
        assert part in notes


def test_of_two_settings_the_newest_is_shown(evidence, tmp_path):
    record = next(each for each in evidence.records.values() if each.spec.head.name == "mos")
    newer = {"taken": "2026-01-03T00:00:00+00:00", "settings": {"contexts": 20, "seed": 0}}
    diagnose(tmp_path, record, diagnostic="spectrum", content=spectrum(5, exact=True), **newer)
    (of,) = gathered(evidence, [SPECTRUM])
    assert list(of.stored) == [record.id]
    names = [column.name for column in diagnosed.summary(evidence, of).columns]
    assert names == ["head", "bound", "Press rank", "rank 1e-5", "centred: rank 1e-5", "test ppl", "n"]
    assert of.results[record.id].raw.press == 5


def test_a_result_of_another_form_counts_as_none(evidence, tmp_path):
    record = next(each for each in evidence.records.values() if each.spec.head.name == "mos")
    diagnose(tmp_path, record, diagnostic="spectrum", content={"press": 3})
    (of,) = gathered(evidence, [SPECTRUM])
    assert len(of.results) == 1
