"""A file that a head or backbone reads by a parameter of the type Path is part of the trial's id, by its content."""

from functools import partial
from pathlib import Path

import handmade
import pytest
import torch
from disturbed import suite_text

from harness import plan
from harness.errors import CorpusError, RecordError, SuiteError
from harness.heads.softmax import Softmax
from harness.records.contents import confirmed
from harness.registry import HEADS
from harness.trial.run import run

TRAIN = "train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}"


class Reading(Softmax):
    """A softmax whose bias is read from a file."""

    def __init__(self, dims, embedding, *, words: Path):
        super().__init__(dims, embedding)
        torch.nn.init.constant_(self.output.bias, float(Path(words).read_text()))


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """A function: the content of the file -> the suite's only trial, and its contents."""
    HEADS.names()
    monkeypatch.setitem(HEADS._classes, "reading", Reading)

    def loaded(content: str, name: str = "words.txt"):
        (tmp_path / name).write_text(content)
        (tmp_path / "tiny.yaml").write_text(suite_text(f"reading: {{words: {name}}}", train=TRAIN))
        suite = plan.load(tmp_path / "tiny.yaml")
        return suite.trials[0], suite.contents_of(suite.trials[0])

    return loaded


class NamedOrRead(Softmax):
    def __init__(self, dims, embedding, *, words: Path | str):
        super().__init__(dims, embedding)


def test_the_id_changes_with_the_content_and_not_with_the_place_and_a_missing_file_is_a_problem(trial, tmp_path):
    first, second, elsewhere = trial("1"), trial("2"), trial("1", "others.txt")
    assert first[0].id != second[0].id
    assert first[0].id == elsewhere[0].id
    (tmp_path / "others.txt").unlink()
    with pytest.raises(SuiteError, match=r"others\.txt"):
        plan.load(tmp_path / "tiny.yaml")


def test_a_folder_counts_by_all_its_files_and_a_name_in_place_of_a_path_is_no_file(trial, tmp_path, monkeypatch):
    monkeypatch.setitem(HEADS._classes, "reading", NamedOrRead)
    (tmp_path / "vectors").mkdir()
    ids = []
    for change in (
        lambda folder: (folder / "a.txt").write_text("1"),
        lambda folder: (folder / "b.txt").write_text("2"),
        lambda folder: (folder / "c.txt").write_text("2"),
        lambda folder: (folder / "c.txt").rename(folder / "d.txt"),
        lambda folder: ((folder / "more").mkdir(), (folder / "more" / "a.txt").write_text("3")),
        lambda folder: (folder / "a.txt").write_text("4"),  # of two files of one name
    ):
        change(tmp_path / "vectors")
        (tmp_path / "tiny.yaml").write_text(suite_text("reading: {words: vectors}", train=TRAIN))
        ids.append(plan.load(tmp_path / "tiny.yaml").trials[0].id)
    assert len(set(ids)) == 6
    (tmp_path / "tiny.yaml").write_text(suite_text("reading: {words: owner/name}", train=TRAIN))
    suite = plan.load(tmp_path / "tiny.yaml")
    assert suite.contents_of(suite.trials[0]).head is None


def test_the_record_names_the_content_and_a_file_that_changes_makes_no_record(trial, tmp_path):
    spec, contents = trial("1")
    task = partial(handmade.task, runs=tmp_path / "runs", contents=contents)
    record = run(task(spec=spec))
    assert record.status == "ok", record.message
    assert record.contents.head == contents.head
    assert confirmed(record) == record.contents
    with pytest.raises(RecordError, match="is not of that trial"):
        confirmed(record.model_copy(update={"contents": record.contents.model_copy(update={"head": "0" * 64})}))
    other, contents = trial("2")
    (tmp_path / "words.txt").write_text("3")
    with pytest.raises(CorpusError, match="has changed since the trials were planned"):
        run(task(spec=other, contents=contents))
