"""Power cuts, full disks and damaged files: RELIABILITY A18, B1 to B4, B9."""

import contextlib
import io
import os
from pathlib import Path

import handmade
import pytest
import torch
from disturbed import Place, suite_text
from handmade import interrupted_before
from trained import loaded, outcome, ran

from harness.errors import Damaged, StorageError
from harness.execution.executors import tidy_finished
from harness.records import store
from harness.training import checkpoint
from harness.training.checkpoint import BEST, Checkpoint, Checkpoints, Position, SessionInfo
from harness.trial import run as trial_run

pytestmark = pytest.mark.system

STEPS = 15  # of an epoch
KEPT = {"record.json", BEST, "trial.log", "test_nll.npz"}


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return loaded(tmp_path_factory.mktemp("suite"), suite_text("softmax")).trials[0]


@pytest.fixture(scope="module")
def whole(spec, tmp_path_factory):
    """What an undisturbed trial gives."""
    return outcome(ran(spec, tmp_path_factory.mktemp("whole")))


@pytest.fixture
def interrupted(spec, tmp_path):
    """The folder of a trial that was interrupted in its third epoch."""
    with interrupted_before(2 * STEPS + 5):
        ran(spec, tmp_path)
    return store.folder(tmp_path, spec.id)


@pytest.fixture(autouse=True)
def _uncertified(monkeypatch):
    """No process is asked for certificates: they are no part of what is compared."""
    handmade.without_certifier(monkeypatch)


class PowerCut(BaseException):
    """Nothing runs after it, not even what tidies up."""

    raised_outside_of_components = True  # as harness/containment.py marks what a signal raises


def test_crash_consistency_after_every_prefix_of_the_writes(spec, whole, tmp_path, monkeypatch):
    """The trial is cut off before each of its renames and removals in turn, what was not yet renamed torn in half."""
    operations = {name: getattr(Path, name) for name in ("replace", "unlink")}
    cut, through = 0, False
    while not through:
        done = []

        def counted(name, cut=cut, done=done):
            def operation(self, *arguments, **options):
                if len(done) == cut:
                    raise PowerCut
                if ".tmp" not in self.name or name == "replace":  # nothing is tidied up in a power cut
                    done.append(name)
                    return operations[name](self, *arguments, **options)

            return operation

        runs = tmp_path / f"cut-{cut}"
        with monkeypatch.context() as patch:
            for name in operations:
                patch.setattr(Path, name, counted(name))
            try:
                ran(spec, runs)
                through = True
            except PowerCut:
                for torn in store.folder(runs, spec.id).glob(".*.tmp"):
                    os.truncate(torn, torn.stat().st_size // 2)
                    torn.rename(torn.with_name(torn.name.replace(str(os.getpid()), "1")))  # of a process that is gone
        record = ran(spec, runs)
        assert outcome(record) == whole, f"cut off before operation {cut}"
        assert store.load(runs, spec.id) == record
        left = {path.name for path in store.folder(runs, spec.id).iterdir()}
        assert left >= KEPT
        assert not [name for name in left if ".tmp" in name], f"cut off before operation {cut}"
        cut += 1
    assert cut > 12  # three epochs: attempt, best weights, checkpoints, best.pt, the record, removals


def test_what_a_killed_writer_left_half_written_is_removed_by_the_next(tmp_path):
    left = store.folder(tmp_path, "a trial") / ".record.json.1.tmp"
    left.parent.mkdir()
    left.write_bytes(b"half")
    with store.writing(tmp_path, "a trial"):
        assert not left.exists()


def test_a_file_is_on_the_disk_before_its_name_is(tmp_path, monkeypatch):
    events, sync, rename = [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd)))
    monkeypatch.setattr(Path, "replace", lambda self, to: (events.append("rename"), rename(self, to))[1])
    checkpoint.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    file, renamed, folder = events
    assert (Path(file).parent, renamed, folder) == (tmp_path, "rename", str(tmp_path))


@pytest.mark.parametrize("harm", ["emptied", "truncated", 0.6, 0.9999])
@pytest.mark.parametrize("which", ["checkpoint", "best"])
def test_ckpt_truncated_or_bitflip_is_noticed_and_falls_back_to_the_older_one(
    which, harm, spec, whole, tmp_path, interrupted
):
    place = sorted(interrupted.glob(f"{which}-*.pt"))[-1]
    content = bytearray(place.read_bytes())
    if isinstance(harm, float):
        content[int(harm * len(content))] ^= 1
    place.write_bytes(content if isinstance(harm, float) else content[: len(content) // 2 * (harm == "truncated")])
    with pytest.raises(Damaged):
        checkpoint.load(place)
    assert outcome(ran(spec, tmp_path)) == whole
    log = (interrupted / "trial.log").read_text()
    assert f"{place}: " in log
    assert "its SHA-256 does not fit its content" in log or not isinstance(harm, float)
    assert which == "best" or "goes on from its checkpoint: epoch 2, 0 steps done" in log


def test_with_no_good_checkpoint_left_the_trial_begins_anew(spec, whole, tmp_path, interrupted):
    for place in interrupted.glob("checkpoint-*.pt"):
        place.write_bytes(b"")
    record = ran(spec, tmp_path)
    assert (outcome(record), record.environment.sessions) == (whole, 1)


def test_two_checkpoints_are_kept_and_the_best_weights_they_name(tmp_path):
    kept = Checkpoints(tmp_path)
    session = SessionInfo(number=1, started="", elapsed=0.0, peak_memory_mib=0.0, route="default", facts={})
    for epoch, best in ((1, 1), (2, 1), (3, 3), (4, 3), (5, 3)):
        if best == epoch:
            kept.save_best({"w": torch.full((2,), float(epoch))}, epoch)
        about = {"trial": "a trial", "best_epoch": best, "session": session}
        kept.save(Checkpoint(**about, position=Position(epoch + 1), parts={"a": {"b": epoch}}))
        names = sorted(path.name for path in tmp_path.iterdir())
        expected = {1: [1], 2: [1], 3: [1, 3], 4: [3], 5: [3]}[epoch]  # epoch 3 is named beside epoch 1 at first
        assert [name for name in names if name.startswith("best")] == [f"best-{each:06}.pt" for each in expected]
        assert len([name for name in names if name.startswith("checkpoint")]) == min(epoch, 2)
    newest = kept.newest("a trial")
    assert (newest.position, newest.best_epoch, newest.session) == (Position(6), 3, session)
    assert newest.parts == {"a": {"b": 5}}
    assert kept.newest("another trial") is None


def full(*arguments):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("failing", ["fsync", "write"])
def test_enospc_leaves_the_last_good_checkpoint_and_the_trial_goes_on_later(
    failing, spec, whole, tmp_path, monkeypatch
):
    save, saved = checkpoint.save, []

    def filled(content, place):
        saved.append(place)
        with pytest.MonkeyPatch.context() as patch:
            if len(saved) == 5:  # best and checkpoint of two epochs, then the disk is full
                patch.setattr(*{"fsync": (os, "fsync", full), "write": (checkpoint._Hashed, "write", full)}[failing])
            return save(content, place)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", filled)
        with pytest.raises(StorageError, match="No space left on device"):
            ran(spec, tmp_path)
    folder = store.folder(tmp_path, spec.id)
    assert not list(folder.glob(".*.tmp"))
    assert store.load(tmp_path, spec.id) is None
    assert Checkpoints(folder).newest(spec.id).position.epoch == 3
    record = ran(spec, tmp_path)
    assert (outcome(record), record.environment.sessions) == (whole, 2)


def test_record_torn_is_kept_aside_as_bad_and_its_trial_runs_again(spec, whole, tmp_path):
    ran(spec, tmp_path)
    place = store.folder(tmp_path, spec.id) / "record.json"
    torn = place.read_bytes()[:100]
    place.write_bytes(torn)
    assert outcome(ran(spec, tmp_path)) == whole
    assert place.with_name("record.bad").read_bytes() == torn
    assert not place.with_name("record.previous.json").exists()


def test_moved_results_are_found_where_they_are_now(tmp_path):
    there, moved = Place(tmp_path / "place", suite_text("softmax")), tmp_path / "elsewhere"
    there.here()
    (record,) = there.runs.glob("*/record.json")
    assert str(there.folder) not in record.read_text()
    (there.folder / "results").rename(moved)
    done = there.run("--executor", "inline", "--no-tracking", "--results", moved)
    assert done.returncode == 0
    assert "nothing to run" in done.stdout


@pytest.mark.parametrize("by", ["the next attempt", "the next command"])
def test_what_a_worker_leaves_that_dies_right_after_its_record_is_tidied_up(by, spec, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(trial_run, "tidy", lambda *arguments: (_ for _ in ()).throw(PowerCut))
        with pytest.raises(PowerCut):
            ran(spec, tmp_path)
    folder, saved = store.folder(tmp_path, spec.id), store.load(tmp_path, spec.id)
    assert Checkpoints(folder).newest(spec.id) is not None
    with store.writing(tmp_path, spec.id):
        tidy_finished(tmp_path, [spec.id])  # another process has it
    assert Checkpoints(folder).newest(spec.id) is not None
    if by == "the next attempt":
        assert ran(spec, tmp_path) == saved
    else:
        tidy_finished(tmp_path, [spec.id])
    assert {path.name for path in folder.iterdir()} == KEPT


def test_enospc_in_the_midst_of_a_file_is_no_fault_of_torchs(tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, content) -> int:
            return full() if self.tell() else super().write(content)

    monkeypatch.setattr(checkpoint, "atomically", lambda place: contextlib.nullcontext(Full()))
    with pytest.raises(OSError, match="No space left on device"):
        checkpoint.save({"w": torch.ones(10_000)}, tmp_path / "a.pt")
