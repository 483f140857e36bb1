"""What a component reads that no parameter names stands in the record, and in a note under the table."""

import hashlib
import json
import os
from pathlib import Path

import handmade
import numpy as np
import pytest
import torch
from disturbed import suite_text

from harness import plan
from harness.heads.softmax import Softmax
from harness.plan.suite_file import CheckpointSpec
from harness.registry import HEADS
from harness.report import study
from harness.trial.run import run

TRAIN = "train: {optimizer: adam, lr: 0.01, epochs: 1, batch_size: 4, seq_len: 7}"


def short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


class Secretive(Softmax):
    """It reads a file and a variable where it is built, and another variable where it is called."""

    def __init__(self, dims, embedding, *, path: Path | None = None):
        super().__init__(dims, embedding)
        if path is not None:
            Path(path).read_bytes()
        Path("settings.txt").read_text()
        os.environ.get("HARNESS_TEST_SCALE")

    def forward(self, hidden):
        os.environb[b"HARNESS_TEST_SECOND"]
        os.close(os.open("settings.txt", os.O_WRONLY))
        json.loads(Path("settings.json").read_text())  # once more in each step, and noted once
        return super().forward(hidden)


class WithLibraries(Softmax):
    """It reads word vectors by the functions of libraries."""

    def __init__(self, dims, embedding):
        super().__init__(dims, embedding)
        np.load("vectors.npy")
        torch.load("vectors.pt", weights_only=True)
        np.loadtxt("vectors.txt")


@pytest.fixture
def record(tmp_path, monkeypatch):
    """A function: a head -> the record of its trial, in a folder with the files."""
    HEADS.names()
    monkeypatch.setitem(HEADS._classes, "secretive", Secretive)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_TEST_SECOND", "2")
    (tmp_path / "settings.txt").write_text("a setting")
    (tmp_path / "named.txt").write_text("vectors")
    (tmp_path / "settings.json").write_text("{}")

    def finished(head, **more):
        (tmp_path / "tiny.yaml").write_text(suite_text(head, train=TRAIN))
        suite = plan.load(tmp_path / "tiny.yaml")
        (spec,) = suite.trials
        runs = tmp_path / "results" / "runs" / suite.name
        return run(handmade.task(spec, runs, contents=suite.contents_of(spec), **more))

    return finished


def test_files_and_variables_that_a_head_reads_are_in_the_record_and_in_a_note(record, tmp_path):
    found = record("secretive: {path: named.txt}")
    assert found.status == "ok", found.message
    assert found.environment.read == (
        f"head secretive: settings.txt (sha256 {short(b'a setting')})",
        f"head secretive: environment variable HARNESS_TEST_SECOND (sha256 {short(b'2')})",
        f"head secretive: settings.json (sha256 {short(b'{}')})",
    )
    markdown = study.load(plan.load(tmp_path / "tiny.yaml"), tmp_path / "results", warn=[].append).table()
    assert "read what no parameter names, which is not part of the trial's id: head secretive: environment" in markdown


def test_what_an_earlier_session_of_a_trial_read_is_in_the_record_too(record, tmp_path):
    every_step = CheckpointSpec(epochs=1, minutes=1e-9)
    with handmade.interrupted_before(3):
        record("secretive", checkpoint=every_step)
    (tmp_path / "settings.txt").write_text("another setting")
    found = record("secretive", checkpoint=every_step)
    assert found.environment.sessions == 2
    settings = [each for each in found.environment.read if "settings.txt" in each]
    assert settings == [
        f"head secretive: settings.txt (sha256 {short(content)})" for content in (b"a setting", b"another setting")
    ]
    assert len(found.environment.read) == 4  # what both sessions read alike is there once


def test_files_that_libraries_open_for_a_head_are_noted(record, tmp_path, monkeypatch):
    monkeypatch.setitem(HEADS._classes, "with_libraries", WithLibraries)
    np.save(tmp_path / "vectors.npy", np.zeros(3))
    torch.save(torch.zeros(3), tmp_path / "vectors.pt")
    (tmp_path / "vectors.txt").write_text("0.5")
    found = record("with_libraries").environment.read
    assert [each.split()[2] for each in found] == ["vectors.npy", "vectors.pt", "vectors.txt"]


class OfLibrary(Softmax):
    """What torch reads for itself is not the head's."""

    def forward(self, hidden):
        torch.cuda.device_count()
        torch.hub.get_dir()  # reads TORCH_HOME
        return super().forward(hidden)


def test_what_a_library_and_the_harness_read_for_themselves_is_not_the_heads(record, tmp_path, monkeypatch):
    monkeypatch.setitem(HEADS._classes, "of_library", OfLibrary)
    monkeypatch.setenv("TORCH_HOME", "/nowhere")
    os.environ.get("HARNESS_TEST_SCALE")
    (tmp_path / "settings.txt").read_text()
    for head in ("of_library", "mos: {num_mixtures: 2}"):
        found = record(head).environment
        assert found.read == ()
        assert "read" not in found.model_dump()
