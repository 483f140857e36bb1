"""Records made to do harm: a sentence and a trial that counts as not finished; never another error, never a wait."""

import hashlib
import json
import os
import time
from functools import reduce
from operator import getitem

import golden
import handmade
import pytest
from golden import written_out

from harness.errors import RecordError
from harness.plan.specs import ComponentSpec, TrainSpec, TrialSpec, canonical
from harness.records import store

ID = "0123456789ab"
TRAIN = TrainSpec(optimizer="adam", lr=0.01, epochs=2, batch_size=4, seq_len=7)
SPEC = TrialSpec(
    id=ID,
    corpus=ComponentSpec(name="ptb"),
    backbone=ComponentSpec(name="lstm"),
    head=ComponentSpec(name="mos"),
    train=TRAIN,
    seed=1,
)


@pytest.fixture
def place(tmp_path):
    """Where the record is looked for, in a folder that is there."""
    folder = store.folder(tmp_path, ID)
    folder.mkdir()
    return folder / store.FILE_NAME


@pytest.fixture
def sentence(place, tmp_path):
    """What loading the record says, at once."""

    def load() -> str:
        started = time.process_time()
        with pytest.raises(RecordError) as caught:
            store.load(tmp_path, ID)
        assert time.process_time() - started < 20
        message = str(caught.value)
        assert message.startswith(str(place))
        assert message.isprintable()
        assert len(message) < 3_000
        found, warnings = store.load_all(tmp_path, [ID])
        assert (found, len(warnings)) == ({}, 1)
        return message.removeprefix(str(place)).lstrip(": ")

    return load


def written(case) -> bytes:
    """The bytes of a file: as they are in the table, or a record that is changed and sealed by who knows how."""
    if "is" in case:
        return written_out(case["is"]).encode("latin-1")
    content = handmade.record(suite="tiny", spec=SPEC).model_dump(mode="json")
    for place, value in case["sealed"].items():
        *above, key = place.split(".")
        reduce(getitem, above, content)[key] = 10**400 if value == "HUGE" else value
    text = json.dumps({**content, "sha256": hashlib.sha256(canonical(content).encode()).hexdigest()})
    return (text[:-1] + case.get("then", "}")).encode()


def test_the_sealed_record_without_changes_is_loaded(place, tmp_path):
    place.write_bytes(written({"sealed": {}}))
    assert store.load(tmp_path, ID).spec == SPEC


CASES = golden.read("messages/security/records")


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_hostile_record_is_a_sentence(case, place, sentence):
    place.write_bytes(written(case))
    assert sentence().startswith((case["says"], case.get("or", case["says"])))


def test_what_is_no_file_is_a_sentence(place, sentence):
    os.mkfifo(place)  # with nobody writing
    again = f"`harness run {place.parts[-3]}` trains the trial again, and keeps this file as record.bad"
    assert sentence() == f"cannot be read (not a regular file); {again}"
    place.unlink()
    place.symlink_to("/dev/zero")  # all others: tests/security/test_hostile_suites.py
    assert sentence() == f"cannot be read (not a regular file); {again}"
