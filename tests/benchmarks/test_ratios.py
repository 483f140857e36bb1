"""What is derived from a measurement, against arithmetic by hand."""

import pytest

from harness.benchmarks import figures, machine, targets
from harness.benchmarks.cells import Cell
from harness.benchmarks.measurement import ProductRate, load, loses, save, slug, unsteady
from harness.errors import ExecutionError

FP32, ONEDNN, BF16 = ("fp32", "default"), ("fp32", "onednn"), ("bf16", "onednn")


@pytest.fixture
def run(measured):
    """Softmax and MoS-15 in two routes; medians: published 116 and 2,567, ours 96, 1,438 and 58, 900."""
    cells = {
        ("softmax", "ours", *FP32): (95.0, 96.0, 99.0),
        ("softmax", "ours", *ONEDNN): (58.0,),
        ("softmax", "published", *FP32): (116.0,),
        ("softmax", "target-only", *FP32): (80.0,),
        ("mos15", "ours", *FP32): (1438.0,),
        ("mos15", "ours", *ONEDNN): (900.0,),
        ("mos15", "published", *FP32): (2567.0,),
        ("mos15", "torch", *FP32): "failed: RuntimeError",
    }
    return measured(cells, {FP32: (100.0, 99.0, 101.0)})


def test_medians_leave_out_what_was_not_measured(run):
    medians = run.medians()
    assert medians[Cell("softmax", "ours", *FP32)] == 96
    assert Cell("mos15", "torch", *FP32) not in medians
    assert len(medians) == 7


def test_ratios_are_of_medians(run):
    assert figures.best(run, "mos15", "ours", "fp32") == 900
    assert figures.base(run, "mos15") == 2567
    assert figures.linearity(run, "ours", FP32) == pytest.approx(1438 / (15 * 96))
    assert figures.linearity(run, "published", ONEDNN) is None
    assert figures.quotient(None, 2.0) is figures.quotient(2.0, None) is None


def test_nothing_stands_in_for_a_base_that_was_not_measured(measured):
    cells = {(head, impl, *ONEDNN): (9.0,) for head in ("softmax", "mos10", "mos15") for impl in ("ours", "published")}
    found = measured(cells)
    assert figures.base(found, "mos10") is None
    assert not any("published / ours" in target.text for target, _ in targets.outcomes(found))
    reordered = measured({("mos2", "published", *BF16): (1.0,), ("mos2", "published", *FP32): (2.0,)})
    assert figures.base(reordered, "mos2") == 2.0


def test_the_fraction_of_the_product_rate(run):
    # 6 x 700 x 15 x 10,000 x 200 = 126 GFLOP in 1.438 s: 87.6 GFLOP/s of 100
    assert figures.product_fraction(run, "mos15", FP32) == pytest.approx(126 / 1.438 / 100)
    assert figures.product_fraction(run, "mos15", ONEDNN) is None


def test_an_evaluation_has_a_third_of_the_products(run):
    assert run.gflop("mos15") == pytest.approx(126)
    assert run.model_copy(update={"kind": "eval"}).gflop("mos15") == pytest.approx(42)


def test_ours_is_held_against_the_fastest_of_the_same_products(run):
    # by oneDNN nothing but ours was measured
    assert figures.against_fastest(run) == {
        Cell("softmax", "ours", *FP32): (pytest.approx(96 / 80), "target-only"),
        Cell("mos15", "ours", *FP32): (pytest.approx(1438 / 2567), "published"),
    }


def test_the_growth_of_memory_with_k(measured):
    # N d floats are 700 x 200 x 4 bytes = 0.534 MiB; 30 + 2.5 of them a component, softmax is no mixture
    one = 700 * 200 * 4 / 2**20
    cells = {(f"mos{k}", "ours", *FP32): (30 + 2.5 * k * one,) for k in (2, 5, 15)} | {
        ("softmax", "ours", *FP32): (9.0,)
    }
    found = measured(cells, kind="memory")
    assert figures.memory_slope(found, "ours", FP32) == pytest.approx(2.5)
    assert figures.memory_slope(found, "published", FP32) is None


def test_targets_are_those_of_the_measurement_that_can_be_told(run):
    found = {target.text: (round(value, 3), target.met(value)) for target, value in targets.outcomes(run)}
    assert found == {
        "Softmax, linear + cross_entropy / ours, worse route": (round(80 / 96, 3), False),
        "MoS-15 / (15 x Softmax), ours, best fp32 route": (round(900 / (15 * 58), 3), True),
        "ours / fastest baseline of same products, worst cell": (1.2, False),
    }
    assert targets.outcomes(run.model_copy(update={"device_type": "cuda"})) == []
    assert targets.outcomes(run.model_copy(update={"tokens": 1400})) == []


def test_a_graph_has_targets_of_its_own(measured):
    cells = {("softmax", "ours", "bf16", "default"): (2.0,), ("mos15", "ours", "bf16", "default"): (3.0,)}
    found = measured(cells, kind="step", device_type="cuda", graph=True)
    ((target, value),) = targets.outcomes(found)
    assert (target.value, value) == (1.8, pytest.approx(1.5))
    ((target, value),) = targets.outcomes(found.model_copy(update={"graph": False}))
    assert (target.value, target.met(value)) == (1.25, False)


def test_a_measurement_is_read_as_it_was_saved(run, tmp_path):
    save(run, tmp_path / "bench" / "a.json")
    assert load(tmp_path / "bench" / "a.json") == run
    (tmp_path / "bench" / "a.json").write_text('{"kind": "head"}')
    with pytest.raises(ExecutionError, match=r"a\.json is not a measurement of harness bench"):
        load(tmp_path / "bench" / "a.json")


def test_a_fuller_or_quieter_record_is_told(run, tmp_path):
    place = tmp_path / run.file_name
    fewer, loud = run.model_copy(update={"cells": run.cells[1:]}), run.model_copy(update={"contended": ("load 3",)})
    assert loses(fewer, place) == ""
    save(run, place)
    assert loses(run, place) == loses(run.model_copy(update={"cells": run.cells[:-1]}), place) == ""  # it was lacking
    assert loses(fewer, place) == f"{place} has 1 cells more than this measurement, such as softmax ours fp32 default"
    assert loses(loud, place) == f"{place} was measured on a quiet machine, and this measurement is contended"
    save(loud, place)
    assert loses(loud, place) == ""


def test_threads_are_in_the_name_of_the_file(run):
    assert run.file_name == "head_ptb_n700.json"
    assert run.model_copy(update={"threads": 2, "graph": True}).file_name == "head_ptb_n700_t2_graph.json"


def test_a_product_rate_that_varies_by_more_than_15_percent_is_told():
    steady = ProductRate(precision="fp32", route="default", gflops=(93.0, 100.0, 107.0))
    assert unsteady([steady]) == []
    varied = ProductRate(precision="bf16", route="onednn", gflops=(92.0, 100.0, 108.0))
    assert unsteady([steady, varied]) == ["the bf16 onednn product rate varied by 16 %"]


def test_load_that_leaves_too_few_cores_is_told(monkeypatch):
    monkeypatch.setattr(machine, "cpus_available", lambda: 4)
    assert machine.high_load(3.2, threads=1) == []
    assert machine.high_load(3.2, threads=2) == ["load 3.20 at the start on 4 cores, of which this measurement uses 2"]


def test_a_device_names_its_files():
    assert slug("AMD EPYC 9B45 (64-Core)") == "amd_epyc_9b45_64_core"
