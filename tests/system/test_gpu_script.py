"""The script for a machine with a GPU, in its dry mode on the CPU."""

import tarfile

import pytest

from harness.benchmarks import gpu
from harness.benchmarks.record import Cell, Measurement, load


@pytest.fixture
def dry(tmp_path):
    """A function: arguments -> exit code of the tiny run, in the test's folder."""
    common = ["--device", "cpu", "--tiny", "--rounds", "1", "--results", str(tmp_path / "results")]
    return lambda *arguments: gpu.main([*common, "--out", str(tmp_path / "out"), *arguments])


def test_all_parts_leave_a_summary_and_their_records_also_after_one_that_failed(dry, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "TINY", (("head", "--setting", "none"), *gpu.TINY))
    assert dry() == 1
    summary = (tmp_path / "out" / "summary.md").read_text()
    named = [line for line in summary.splitlines() if line.startswith("## ")]
    assert [line.split()[3] for line in named] == ["head", "head", "step", "memory"]
    assert [line.endswith(": FAILED") for line in named] == [True, False, False, False]
    assert "Whole training step" in summary
    with tarfile.open(tmp_path / "out" / "records.tar.gz") as packed:
        names = packed.getnames()
    assert len(names) == 3
    assert all(name.startswith("results/bench/") for name in names)


def test_a_fuller_record_is_not_replaced(dry, tmp_path):
    assert dry("--parts", "head") == 0
    (kept,) = tmp_path.glob("results/bench/*/*.json")
    whole = load(Measurement, kept)
    more = whole.cells[0].model_copy(update={"head": "mos3"})
    kept.write_text(whole.model_copy(update={"cells": (*whole.cells, more)}).model_dump_json())
    before = kept.read_bytes()
    assert dry("--parts", "head") == 1
    assert kept.read_bytes() == before
    assert Cell("mos3", *more.cell[1:]) not in load(Measurement, tmp_path / "out" / "0_head.json").medians()
    assert "nothing was saved" in " ".join((tmp_path / "out" / "summary.md").read_text().split())


def test_an_unknown_part_is_a_users_mistake(dry, capsys):
    with pytest.raises(SystemExit) as left:
        dry("--parts", "head,suite")
    assert left.value.code == 2
    assert "--parts suite: expected head, step, memory" in capsys.readouterr().err
