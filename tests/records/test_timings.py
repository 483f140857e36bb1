"""Timings: saved whole, believed when they verify, and only beside the record that they are of."""

import json

import handmade
import pytest

from harness.errors import RecordError
from harness.records import sidecars
from harness.records.sidecars import Timing


def timing(**changes) -> Timing:
    values = {
        "trial": handmade.record().id,
        "weights_sha256": handmade.record().weights_sha256,
        "metrics": {"train_ms_per_batch": 12.25, "train_ms_per_batch_iqr": 0.5},
        "batches": 60,
        "rounds": 3,
        "passed": "a pass",
        "device": "a processor",
        "threads": 1,
        "torch": "2.13.0",
        "commit": "abc",
        "taken": "2026-01-02T03:06:05+00:00",
        "busy": 0.125,
        "shared": False,
    }
    return Timing(**{**values, **changes})


def test_what_was_saved_is_loaded_equal(tmp_path):
    assert sidecars.TIMING.load_all(tmp_path, {"0123456789ab": handmade.record()}) == ({}, [])
    place = sidecars.save_timing(timing(), tmp_path)
    assert place == tmp_path / "0123456789ab" / "timing.json"
    assert sidecars.TIMING.load(tmp_path, handmade.record()) == timing()
    assert sidecars.TIMING.load_all(tmp_path, {"0123456789ab": handmade.record()}) == ({"0123456789ab": timing()}, [])


@pytest.mark.parametrize("changes", [{"weights_sha256": "cd" * 32}, {"trial": "ba9876543210"}])
def test_the_timing_of_another_record_counts_for_nothing(changes, tmp_path):
    place = sidecars.save_timing(timing(), tmp_path)
    place.write_bytes(sidecars.save_timing(timing(**changes), tmp_path / "other").read_bytes())
    assert sidecars.TIMING.load(tmp_path, handmade.record()) is None


def test_a_torn_edited_or_later_timing_is_refused_with_its_path(tmp_path):
    place = sidecars.save_timing(timing(), tmp_path)
    whole = place.read_bytes()
    later = sidecars.save_timing(timing(schema_version=2), tmp_path / "later").read_bytes()
    for content, reason in {
        whole[:-20]: "no valid timing",
        b"[]": "no valid timing",
        whole.replace(b"12.25", b"11.25"): "the checksum does not fit the content",
        later: "schema 2, expected 1",
        json.dumps({**json.loads(whole), "batches": "many"}).encode(): "the checksum does not fit the content",
    }.items():
        place.write_bytes(content)
        with pytest.raises(RecordError, match=f"{place}.*{reason}"):
            sidecars.TIMING.load(tmp_path, handmade.record())
    found, (warning,) = sidecars.TIMING.load_all(tmp_path, {"0123456789ab": handmade.record()})
    assert (found, str(place) in warning) == ({}, True)


def test_the_id_of_a_pass_has_its_key_in_the_file(tmp_path):
    made = timing()
    content = json.loads(sidecars.save_timing(made, tmp_path).read_text(encoding="utf-8"))
    assert content["passed"] == made.pass_id
    assert "pass_id" not in content
