"""Files of records made to do harm, or torn on their way: a sentence, and nothing written; never another error."""

import json
import os
import random
import shutil
import stat
import struct
import time
import zipfile
from pathlib import Path

import bundles
import golden
import pytest
import tokenizer_folders
from bundles import files, keep, members, packed, planned, record_of, timing_of
from golden import written_out
from texts import lines

from harness.errors import RecordError, StorageError
from harness.exchange.copying import Imported, export_records, import_records
from harness.machine import files as machine_files
from harness.plan.specs import ComponentSpec, checksum
from harness.records import sealed, store
from harness.records.contents import facts_of
from harness.registry import CORPORA


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a sound export of one trial, `sound.zip`, and the results folder that it is of, `there`."""
    folder = tmp_path_factory.mktemp("made")
    (spec, *_) = planned(folder)
    keep(folder / "there", record_of(spec, contents=bundles.contents_of(folder)))
    export_records(folder / "there", folder / "sound.zip")
    return folder


@pytest.fixture
def content(made):
    """The members of the sound export, by name."""
    return members(made / "sound.zip")


@pytest.fixture
def trial(content):
    """'small/<trial id>'."""
    return next(iter(content)).rpartition("/")[0]


@pytest.fixture
def sentence(tmp_path):
    """A function: a file's bytes -> the sentence with which it is refused, at once, with nothing written."""

    def refused(hostile: bytes) -> str:
        place, here = tmp_path / "hostile.zip", tmp_path / "results"
        place.write_bytes(hostile)
        before, started = files(tmp_path), time.process_time()
        with pytest.raises(RecordError) as caught:
            import_records(place, here, replacing=True)
        assert time.process_time() - started < 30
        assert files(tmp_path) == before
        assert not here.exists()
        message = str(caught.value)
        assert message.startswith(str(place))
        assert message.isprintable()
        assert len(message) < 3_000
        return message.removeprefix(str(place)).lstrip(": ")

    return refused


def test_an_archive_of_schema_1_which_lists_its_members_is_taken_in(made, content, tmp_path):
    manifest = json.loads(content["manifest.json"]) | {"schema_version": 1, "trials": [{"suite": "small"}]}
    (tmp_path / "same.zip").write_bytes(packed({**content, "manifest.json": json.dumps(manifest).encode()}))
    assert import_records(tmp_path / "same.zip", tmp_path / "results").new == 1
    assert files(tmp_path / "results") == files(made / "there")


def drawn(which: str, size: int) -> set[int]:
    """Places of a file: both of its ends and two hundred between them, or every one."""
    some = {*range(30), *range(size - 30, size), *random.Random(1).sample(range(size), 200)}
    return some if which == "some" else {*range(size)}


PLACES = pytest.mark.parametrize("which", ["some", pytest.param("every", marks=pytest.mark.system)])


@PLACES
def test_a_file_torn_at_any_byte_is_refused(which, made, tmp_path):
    place = Path(shutil.copy(made / "sound.zip", tmp_path))
    for length in sorted(drawn(which, place.stat().st_size), reverse=True):
        os.truncate(place, length)
        with pytest.raises(RecordError, match="is damaged, or was not made by `harness export`"):
            import_records(place, tmp_path / "results")
    assert not (tmp_path / "results").exists()


@PLACES
def test_a_file_with_any_byte_changed_is_refused_or_says_the_same(which, made, tmp_path):
    sound, place, harmless = (made / "sound.zip").read_bytes(), tmp_path / "changed.zip", 0
    import_records(made / "sound.zip", tmp_path / "results")
    for index in drawn(which, len(sound)):
        place.write_bytes(sound[:index] + bytes([sound[index] ^ 0x55]) + sound[index + 1 :])
        try:
            assert import_records(place, tmp_path / "results") == Imported(known=1)
            harmless += 1
        except RecordError:
            continue
    assert files(tmp_path / "results") == files(made / "there")
    # dates, versions, and what of a member's own header its entry in the index says too: some 24 bytes of either
    assert 0 < harmless < 48 * len(members(made / "sound.zip"))


GOLDEN = golden.read("messages/security/archives")


def test_what_is_no_file_of_records_is_refused(sentence):
    for hostile in GOLDEN["files"]:
        assert "was not made by `harness export`" in sentence(written_out(hostile).encode("latin-1"))


def test_what_is_no_file_is_refused(tmp_path):
    for place, reason in {tmp_path: "not a regular file", "none": "No such file", "/dev/zero": "regular"}.items():
        with pytest.raises(RecordError, match=reason):
            import_records(tmp_path / place, tmp_path / "results")


def test_no_member_suite_or_trial_has_a_name_of_its_own(content, trial, sentence):
    files = [{**content, path.replace("ID", trial.rpartition("/")[2]): b"evil"} for path in GOLDEN["members"]]
    odd = [("small", written_out(suite)) for suite in GOLDEN["suites"]]
    odd += [(trial, f"small/{name}") for name in GOLDEN["trials"]]
    files += [{path.replace(*names): text for path, text in content.items()} for names in odd]
    for hostile in files:
        assert "is no name of a file in an export" in sentence(packed(hostile))


def test_an_archive_without_record_or_manifest_is_refused(content, trial, sentence):
    without = {path: text for path, text in content.items() if not path.endswith("record.json")}
    assert "has no record.json" in sentence(packed(without))
    assert "it has no manifest.json" in sentence(packed({f"{trial}/record.json": b"{}"}))
    assert "it has no record" in sentence(packed({"manifest.json": content["manifest.json"]}))


def test_what_is_no_regular_file_is_refused(content, trial, sentence):
    for mode in (stat.S_IFLNK | 0o777, stat.S_IFDIR | 0o755, stat.S_IFIFO, stat.S_IFCHR):
        about = zipfile.ZipInfo(f"{trial}/record.json")
        about.external_attr = mode << 16
        assert "is no regular file" in sentence(packed(content, record=about))
        target = {**content, f"{trial}/record.json": b"/etc/passwd"}
        assert "is no regular file" in sentence(packed(target, record=about))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(made, content, trial, sentence, tmp_path):
    place = tmp_path / "twice.zip"
    place.write_bytes((made / "sound.zip").read_bytes())
    with zipfile.ZipFile(place, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{trial}/record.json", b"{}")
    assert "two of its members have one name" in sentence(place.read_bytes())


def test_a_bomb_is_not_unpacked(content, trial, sentence):
    large = random.Random(1).randbytes(34 * 2**20)
    bomb = {**content, f"{trial}/record.json": large}
    assert "record.json' has more than 16,777,216 bytes" in sentence(packed(bomb))
    said = sentence(packed({**content, "manifest.json": large}))
    assert "'manifest.json' has more than 33,554,432 bytes" in said


@pytest.mark.parametrize("name", ["record.json", "manifest.json"])
def test_what_unpacks_out_of_proportion_is_not_unpacked(name, content, trial, sentence):
    place = name if name == "manifest.json" else f"{trial}/{name}"
    zeros = {**content, place: bytes(16 * 2**20)}  # of honest size: 16 kB packed
    said = sentence(packed(zeros))
    assert "bytes, more than 100 times its size); export the records again where they were made" in said


def test_a_member_that_is_larger_than_it_says_is_not_unpacked_further(content, trial, sentence):
    large = packed({**content, f"{trial}/record.json": bytes(8 * 2**20)})
    small = large.replace(struct.pack("<L", 8 * 2**20), struct.pack("<L", 100))  # in its header and in the index
    assert small != large
    assert "is damaged, or was not made by `harness export` (Bad CRC-32" in sentence(small)


def test_the_index_is_bounded_before_it_is_read(made, sentence):
    sound = (made / "sound.zip").read_bytes()
    claimed = sound[:-10] + struct.pack("<L", 2**30) + sound[-6:]
    assert "its index has more than 13,107,000 bytes" in sentence(claimed)
    locator = b"PK\6\7" + struct.pack("<LQL", 0, 0, 1)
    assert "it does not end as an exported file does" in sentence(sound[:-22] + locator + sound[-22:])
    assert "it does not end as an exported file does" in sentence(sound[:-2] + b"\1\0c")


def test_a_member_packed_otherwise_is_refused(content, trial, sentence):
    for kind in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_STORED):
        place = packed(content)
        hostile = place.replace(b"\x08\0\0\0\x21\0", struct.pack("<H", kind) + b"\0\0\x21\0")
        assert hostile != place
        assert "is compressed with another method" in sentence(hostile)
    deflated = b"\0\0\0\0\x21\0"
    assert "is compressed with another method" in sentence(packed(content).replace(deflated, b"\x08\0\0\0\x21\0"))


def test_an_encrypted_member_is_refused(content, sentence):
    place = packed(content)
    index = place.rindex(b"PK\1\2") + 8  # the flags of the manifest, which is the last member
    assert "encrypted" in sentence(place[:index] + b"\1" + place[index + 1 :])


def test_a_manifest_of_another_kind_is_refused(content, sentence):
    for case in GOLDEN["manifests"]:
        manifest = written_out(case["is"]).encode("latin-1")
        assert case["says"] in sentence(packed({**content, "manifest.json": manifest}))


def resealed(record: bytes, **changes) -> bytes:
    """A record with changes, under a checksum that fits."""
    content = {key: value for key, value in json.loads(record).items() if key != "sha256"} | changes
    return json.dumps({**content, "sha256": checksum(content)}).encode()


def test_a_record_that_is_none_of_its_trial_is_refused(content, trial, sentence):
    path = f"{trial}/record.json"
    spec = json.loads(content[path])["spec"]
    for changes, reason in (
        ({"schema_version": 2}, "schema 2, expected 1"),
        ({"suite": "other"}, "holds a record of the suite 'other'"),
        ({"spec": {**spec, "id": "0" * 12}}, "holds the record of trial 000000000000"),
        ({"spec": {**spec, "seed": 7}}, "is not of that trial"),  # another trial's numbers under this one's id
        ({"contents": {"corpus": "0" * 64, "backbone": None}}, "is not of that trial"),
        ({"spec": {**spec, "train": {**spec["train"], "lr": 1}}, "contents": None}, "does not say what it read"),
    ):
        assert reason in sentence(packed({**content, path: resealed(content[path], **changes)}))
    assert "the checksum" in sentence(packed({**content, path: content[path].replace(b": 1", b": 3")}))


def test_what_lies_beside_a_record_must_be_the_records(content, trial, sentence, tmp_path):
    (spec, *_) = planned(tmp_path / "plan")
    other = timing_of(record_of(spec, weights_sha256="cd" * 32))
    sealed.save(other, tmp_path / "plan" / "timing.json")
    foreign = (tmp_path / "plan" / "timing.json").read_bytes()
    hostile = {**content, f"{trial}/timing.json": foreign}
    assert "belongs to another training" in sentence(packed(hostile))
    for torn in (b"", b"PK", content[f"{trial}/test_nll.npz"][:-1]):
        assert "cannot be read as the losses of the test tokens" in sentence(
            packed({**content, f"{trial}/test_nll.npz": torn})
        )


@pytest.mark.parametrize("corpus", ["text", pytest.param("embedded", marks=pytest.mark.needs("pretrained"))])
def test_no_file_is_opened_on_the_word_of_a_record(corpus, tmp_path):
    private = tokenizer_folders.write(tmp_path / "private", "gpt2")
    for seed, name in enumerate(("train", "valid", "test")):
        (private / f"{name}.txt").write_text(lines(20, seed))
    params = {"path": str(private)} if corpus == "text" else {"tokenizer": {"pretrained": str(private)}}
    assert CORPORA.get(corpus)(**params).facts().content  # it could be read
    assert facts_of(ComponentSpec(name=corpus, params=params)) is None


def test_without_room_for_all_records_none_is_written(made, tmp_path, monkeypatch):
    needed = sum(len(each) for name, each in members(made / "sound.zip").items() if name != "manifest.json")
    usage = shutil.disk_usage(tmp_path)._replace(free=machine_files.ROOM + needed)  # and nothing for blocks
    monkeypatch.setattr(machine_files.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StorageError, match=r"take 0\.0 MB, and .* has .* MB left; nothing was written: free some room"):
        import_records(made / "sound.zip", tmp_path / "results")
    assert not (tmp_path / "results").exists()
    monkeypatch.undo()
    assert import_records(made / "sound.zip", tmp_path / "results").new == 1
    monkeypatch.setattr(machine_files.shutil, "disk_usage", lambda _: usage)
    assert import_records(made / "sound.zip", tmp_path / "results").known == 1  # which needs no room


@pytest.mark.parametrize(
    "change",
    [{"message": "x" * 300_000}, {"not_certified": "x" * 300_000}, {"environment": ("x" * 1000,) * 300}],
    ids=["message", "not-certified", "environment"],
)
def test_a_record_of_long_texts_does_not_count(change, made, tmp_path):
    (spec, *_) = planned(tmp_path / "suite")
    record = record_of(spec, contents=bundles.contents_of(tmp_path / "suite"))
    if "environment" in change:
        change = {"environment": record.environment.model_copy(update={"switched_off": change["environment"]})}
    place = keep(tmp_path / "there", record.model_copy(update=change), timed=False, scored=False)
    found, (said,) = store.load_all(place.parent, [record.id])
    assert found == {}
    assert "characters without its curve, expected at most 262,144; the record does not count" in said
