"""The script for a machine with a GPU, in its dry mode on the CPU."""

import json
import tarfile

import pytest

from harness.benchmarks import gpu


def tiny(folder, *arguments) -> int:
    """Exit code of the tiny run in a folder."""
    common = ["--device", "cpu", "--tiny", "--rounds", "1", "--results", str(folder / "results")]
    return gpu.main([*common, "--out", str(folder / "out"), *arguments])


@pytest.fixture
def dry(tmp_path):
    """A function: arguments -> exit code of the tiny run, in the test's folder."""
    return lambda *arguments: tiny(tmp_path, *arguments)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a tiny run of all parts, which takes four processes."""
    folder = tmp_path_factory.mktemp("whole")
    assert tiny(folder) == 0
    return folder


def test_all_parts_leave_a_summary_and_their_records(whole):
    summary = (whole / "out" / "summary.md").read_text()
    assert [line.partition(",")[0] for line in summary.splitlines() if line.startswith("## ")][:3] == [
        "## Head",
        "## Whole training step",
        "## Peak extra memory of one head step",
    ]
    assert "FAILED" not in summary
    assert summary.count(": ok ") == 2
    with tarfile.open(whole / "out" / "records.tar.gz") as packed:
        names = packed.getnames()
    assert sum(name.startswith("results/bench/") for name in names) == 3
    assert sum(name.endswith("record.json") for name in names) == 2
    assert "results/tables/gpu_tiny.md" in names


def test_the_suite_goes_on_where_the_budget_ended_it(dry, tmp_path):
    assert dry("--parts", "suite", "--budget", "0") == 1
    assert (tmp_path / "out" / "summary.md").read_text().count("not finished") == 2
    assert dry("--parts", "suite") == 0
    first = {path: path.stat().st_mtime_ns for path in tmp_path.glob("results/runs/*/*/record.json")}
    assert len(first) == 2
    assert dry("--parts", "suite") == 0
    assert {path: path.stat().st_mtime_ns for path in first} == first


def test_a_part_that_fails_is_told_and_the_others_run(dry, tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu.speed, "measure", broken)
    assert dry("--parts", "head,memory") == 1
    summary = (tmp_path / "out" / "summary.md").read_text()
    assert "## head tiny: FAILED" in summary
    assert "## Peak extra memory" in summary


def test_trials_side_by_side_are_marked_so_and_the_largest_mixture_starts_first(whole):
    found = [json.loads(path.read_text()) for path in whole.glob("results/runs/*/*/record.json")]
    assert [record["environment"]["shared"] for record in found] == [True, True]
    assert "mos" in (whole / "out" / "trials_0.log").read_text().partition("seed=")[0]


def test_one_process_has_the_machine_to_itself(dry, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "TINY_SUITE", gpu.TINY_SUITE.replace(", {mos: {num_mixtures: 2}}", ""))
    assert dry("--parts", "suite") == 0
    (record,) = tmp_path.glob("results/runs/*/*/record.json")
    assert json.loads(record.read_text())["environment"]["shared"] is False


def test_a_fuller_record_is_not_replaced(dry, tmp_path, monkeypatch):
    assert dry("--parts", "head") == 0
    (kept,) = tmp_path.glob("results/bench/*/*.json")
    before = kept.read_bytes()
    monkeypatch.setattr(gpu, "checked_impls", lambda *_, **__: ("ours",))
    assert dry("--parts", "head") == 1
    assert kept.read_bytes() == before
    assert (tmp_path / "out" / kept.name).exists()
    assert f"only: {kept} has " in (tmp_path / "out" / "summary.md").read_text()


def test_seeds_that_the_suite_does_not_have_are_told(dry, tmp_path):
    assert dry("--parts", "suite", "--seeds", "9") == 1
    assert "--seeds 9: " in (tmp_path / "out" / "summary.md").read_text()
