"""diagnostics.json beside a record: added to, replaced, and read only if it belongs to the record and is whole."""

import json

import pytest
from bundles import diagnosis_of, keep, planned, record_of

from harness.errors import RecordError
from harness.records import sealed, sidecars, store


@pytest.fixture
def record(tmp_path):
    found = record_of(planned(tmp_path)[0])
    keep(tmp_path, found)
    return found


@pytest.fixture
def runs(tmp_path, record):
    return store.runs_folder(tmp_path, record.suite)


def place(runs, record):
    return store.folder(runs, record.id) / sidecars.DIAGNOSES.file


def test_a_result_of_the_same_settings_is_replaced_and_others_stay(runs, record):
    assert sidecars.DIAGNOSES.load(runs, record) is None
    first, other = diagnosis_of(), diagnosis_of(settings={"contexts": 10})
    newer = diagnosis_of(code="6" * 64, content={"used": 2.0})
    for each in (first, other, newer):
        sidecars.add_diagnosis(runs, record, each)
    assert sidecars.DIAGNOSES.load(runs, record) == (other, newer)


def test_results_of_other_weights_do_not_count_and_are_replaced(runs, record):
    sidecars.add_diagnosis(runs, record, diagnosis_of())
    retrained = record.model_copy(update={"weights_sha256": "cd" * 32})
    assert sidecars.DIAGNOSES.load(runs, retrained) is None
    sidecars.add_diagnosis(runs, retrained, diagnosis_of(diagnostic="spectrum"))
    assert [each.diagnostic for each in sidecars.DIAGNOSES.load(runs, retrained)] == ["spectrum"]
    assert sidecars.DIAGNOSES.load(runs, record) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content["found"][0]["content"].update(used=9.0), "the checksum does not fit"),
        (lambda content: content.update(schema_version=9), "the checksum does not fit"),
    ],
)
def test_an_edited_file_does_not_count(runs, record, change, reason):
    sidecars.add_diagnosis(runs, record, diagnosis_of())
    content = json.loads(place(runs, record).read_text())
    change(content)
    place(runs, record).write_text(json.dumps(content))
    with pytest.raises(RecordError, match=reason):
        sidecars.DIAGNOSES.load(runs, record)
    sidecars.add_diagnosis(runs, record, diagnosis_of())  # a damaged file is replaced
    assert len(sidecars.DIAGNOSES.load(runs, record)) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"taken": "tomorrow"}, "taken is 'tomorrow'"), ({"taken": "2999-01-01T00:00:00+00:00"}, "in the future")],
)
def test_a_file_with_an_impossible_date_does_not_count(runs, record, changes, reason):
    found = (diagnosis_of(**changes),)
    content = sidecars.Diagnoses(trial=record.id, weights_sha256=record.weights_sha256, found=found)
    sealed.save(content, place(runs, record))
    with pytest.raises(RecordError, match=reason):
        sidecars.DIAGNOSES.load(runs, record)
