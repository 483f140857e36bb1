"""What is shown of measurements. The committed tables and their records are the golden files of every sentence."""

from pathlib import Path

import pytest

from harness.benchmarks import tables
from harness.benchmarks.backbones import BackboneCosts
from harness.benchmarks.decoding import Writings
from harness.benchmarks.extras import Extras
from harness.benchmarks.plan_memory import PlannedSteps
from harness.benchmarks.record import Measurement, load, save, slug
from harness.errors import ExecutionError

FP32, BF16 = ("fp32", "default"), ("bf16", "default")
COMMITTED = Path(__file__).parents[2] / "results" / "showcase"


@pytest.fixture
def run(measured):
    cells = {
        ("softmax", "ours", *FP32): (50.0,),
        ("softmax", "ours", *BF16): (25.0,),
        ("softmax", "published", *FP32): (100.0,),
        ("mfs", "ours", *FP32): (300.0,),
        ("mfs", "published", *FP32): (270.0,),
        ("softmax", "liger", *FP32): "CUDA only",
        ("mfs", "liger", *FP32): "CUDA only",
        ("mfs", "published", *BF16): "needs about 30 GiB",
    }
    return measured(cells, {FP32: (100.0,), BF16: (200.0,)})


@pytest.mark.parametrize("kind", [BackboneCosts, Writings, Extras, PlannedSteps])
def test_committed_tables_are_made_of_their_records(kind):
    found = sorted((COMMITTED / "bench").glob(f"{kind.stem}_*.json"))
    assert found
    for place in found:
        assert (COMMITTED / "tables" / f"{place.stem}.md").read_text() == load(kind, place).markdown()
        assert load(kind, place).holds


def test_committed_tables_of_devices_are_made_of_their_records():
    folders = [place for place in (COMMITTED / "bench").iterdir() if place.is_dir()]
    assert len(folders) == 2
    for folder in folders:
        records = [load(Measurement, place) for place in folder.glob("*.json")]
        assert {slug(each.device) for each in records} == {folder.name}
        assert (COMMITTED / "tables" / f"bench_{folder.name}.md").read_text() == tables.markdown(records)


def test_without_a_baseline_nothing_is_said_of_one(measured):
    lines = tables.derived(measured({("softmax", "ours", *FP32): (50.0,)}, {FP32: (100.0,)}))
    assert [line.partition(",")[0] for line in lines] == ["Products of a chunk alone", "Fraction of that rate"]
    onednn = measured({("softmax", impl, "fp32", "onednn"): (50.0,) for impl in ("ours", "published")})
    assert not any(line.startswith("x = ") for line in tables.derived(onednn))
    assert tables.rows(onednn)[1] == ["ours", "fp32 onednn", "50.0"]


def test_a_busy_machine_is_flagged_in_the_title_and_under_other_tables(run):
    busy = {"contended": ("load 3.00 at the start",)}
    assert "CONTENDED" not in tables.title(run)
    assert tables.title(run.model_copy(update=busy)).endswith(" (CONTENDED: load 3.00 at the start)")
    (place,) = (COMMITTED / "bench").glob("extras_*.json")
    flagged = load(Extras, place).model_copy(update=busy)
    assert [*tables.shown([flagged])][-1] == "CONTENDED: load 3.00 at the start"
    assert "\n- CONTENDED: load 3.00 at the start\n" in flagged.markdown()


def test_all_measurements_are_saved_or_none(run, tmp_path):
    more = run.model_copy(update={"tokens": 7000})
    fewer = [run, more.model_copy(update={"cells": run.cells[1:]})]
    save(more, tmp_path / "bench" / more.place)
    with pytest.raises(ExecutionError, match="nothing was saved"):
        tables.keep(fewer, tmp_path, replace=False)
    assert not (tmp_path / "bench" / run.place).exists()
    tables.keep(fewer, tmp_path, replace=True)
    assert [load(Measurement, tmp_path / "bench" / each.place) for each in fewer] == fewer
