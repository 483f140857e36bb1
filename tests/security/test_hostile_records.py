"""Records made to do harm: a sentence and a trial that counts as not finished; never another error, never a wait."""

import hashlib
import json
import os
import time

import handmade
import pytest

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


def sealed(**changes) -> bytes:
    """A record with changes, under a checksum that fits: made by somebody who knows how."""
    record = handmade.record(suite="tiny", spec=SPEC)
    content = {**record.model_dump(mode="json"), **changes}
    return json.dumps({**content, "sha256": hashlib.sha256(canonical(content).encode()).hexdigest()}).encode()


def test_the_sealed_record_without_changes_is_loaded(place, tmp_path):
    place.write_bytes(sealed())
    assert store.load(tmp_path, ID).spec == SPEC


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[" * 1_000_000, "no valid record (RecursionError"),
        # Too deep for Python 3.11; later versions read it.
        (b'{"sha256": "", "a": ' + b"[" * 900 + b"]" * 900 + b"}", ("no valid record (RecursionError", "the checksum")),
        (b'{"a": ' * 100_000, "no valid record (RecursionError"),
        (b'{"sha256": "x", "a": ' + b"9" * 100_000 + b"}", "no valid record (ValueError"),
        (b'{"sha256": "x", "a": 1e999}', "no valid record (ValueError"),
        (b'{"sha256": "x", "a": NaN}', "no valid record (ValueError"),
        (b'{"sha256": "x", "a": -Infinity}', "no valid record (ValueError"),
        (b'{"sha256": "x", "a": "\\ud800"}', "the checksum does not fit"),
        (b'{"sha256": "x", "a": "\xff"}', "no valid record (UnicodeDecodeError"),
        (b'{"sha256": ["x"]}', "the checksum does not fit"),
        (bytes(1_000), "no valid record (JSONDecodeError"),
        (b" " * 50_000_000, "cannot be read (larger than 16,777,216 bytes)"),
        (sealed()[:-1] + b', "status": "oom"}', "the checksum does not fit"),
        (sealed(schema_version=10**400), "schema 1000"),
        (sealed(schema_version="\x1b[2J\u202e"), "schema \\x1b[2J\\u202e, expected 1"),
        (sealed(schema_version=None), "schema None"),
        (sealed(spec=None), "no valid record (ValidationError"),
        (sealed(spec={**SPEC.model_dump(), "seed": "1"}), "no valid record (ValidationError"),
        (sealed(spec={**SPEC.model_dump(), "id": "../../evil"}), "holds the record of trial ../../evil"),
        (sealed(metrics={"test_ppl": "1e999"}), "no valid record (ValidationError"),
        (sealed(metrics={"test_ppl": 10**400}), "no valid record ("),
        (sealed(curve=[[]] * 10_000), "no valid record (ValidationError"),
        (sealed(status="fine"), "no valid record (ValidationError"),
        (sealed(**{"x\n" * 1_000: 1}), "no valid record (ValidationError"),
    ],
    ids=range(24),
)
def test_a_hostile_record_is_a_sentence(content, reason, place, sentence):
    place.write_bytes(content)
    assert sentence().startswith(reason)


def test_what_is_no_file_is_a_sentence(place, sentence):
    os.mkfifo(place)  # with nobody writing
    again = f"`harness run {place.parts[-3]}` trains the trial again, and keeps this file as record.bad"
    assert sentence() == f"cannot be read (not a regular file); {again}"
    place.unlink()
    place.symlink_to("/dev/zero")  # all others: tests/security/test_hostile_suites.py
    assert sentence() == f"cannot be read (not a regular file); {again}"
