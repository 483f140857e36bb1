"""What is shown of measurements."""

import pytest

from harness.benchmarks import tables
from harness.benchmarks.measurement import save
from harness.benchmarks.targets import outcomes
from harness.errors import ExecutionError

FP32, BF16 = ("fp32", "default"), ("bf16", "default")


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


def test_a_row_for_each_implementation_in_each_way_with_ratios(run):
    assert tables.rows(run) == [
        ["implementation", "products", "softmax", "mfs"],
        ["ours", "fp32 default", "50.0 (2.00x)", "300 (0.90x)"],
        ["ours", "bf16 default", "25.0 (4.00x)", "-"],
        ["published", "fp32 default", "100 (1.00x)", "270 (1.00x)"],
    ]


def test_what_is_derived_stands_under_the_table(run):
    lines = tables.derived(run)
    assert lines[0] == "Not measured: liger: CUDA only; published: needs about 30 GiB (mfs)."
    assert lines[1] == "x = published fp32 default of the same head / this."
    assert lines[2] == "Products of a chunk alone, GFLOP/s: fp32 default 100, bf16 default 200."
    # 8.4 GFLOP in 50 ms: 168 GFLOP/s; 25.2 in 300 ms: 84
    assert lines[3] == "Fraction of that rate, ours fp32 default: softmax 1.68, mfs 0.84."
    assert lines[-1] == (
        "Slower than a baseline of the same precision and route by over 5 %: mfs fp32 default (1.11 of published)."
    )


def test_without_a_baseline_nothing_is_said_of_one(measured):
    lines = tables.derived(measured({("softmax", "ours", *FP32): (50.0,)}, {FP32: (100.0,)}))
    assert [line.partition(",")[0] for line in lines] == ["Products of a chunk alone", "Fraction of that rate"]
    onednn = measured({("softmax", impl, "fp32", "onednn"): (50.0,) for impl in ("ours", "published")})
    assert not any(line.startswith("x = ") for line in tables.derived(onednn))
    assert tables.rows(onednn)[1] == ["ours", "fp32 onednn", "50.0"]


def test_a_step_says_what_runs_in_less_than_float32(measured):
    cells = {("softmax", impl, *way): (50.0,) for impl in ("ours", "published") for way in (FP32, BF16)}
    assert tables.derived(measured(cells, {FP32: (1.0,)}, kind="step"))[-1] == tables.WHOLE_STEPS
    assert tables.WHOLE_STEPS not in tables.derived(measured(cells, {FP32: (1.0,)}))


def test_a_step_has_a_row_of_its_products_alone_and_their_part_of_its_time(measured):
    cells = {("softmax", "ours", *FP32): (50.0, 60.0, 55.0), ("mos5", "ours", *FP32): (200.0,)}
    alone = measured({("softmax", "ours", *FP32): (43.0, 44.0, 48.0)}).cells
    found = measured(cells, {FP32: (1.0,)}, kind="step", backbone="lstm", products_alone=alone)
    assert tables.rows(found)[1:] == [
        ["ours", "fp32 default", "55.0", "200"],
        ["products alone", "fp32 default", "44.0 (0.80)", "-"],  # 44 / 55
    ]
    assert tables.title(found).startswith("Whole training step, lstm, ptb")
    assert found.file_name == "step_ptb_n700_lstm.json"
    aims = {target.text: (value, target.met(value)) for target, value in outcomes(found)}
    assert aims == {"LSTM, Softmax, products alone / ours, worse fp32 route": (44 / 55, True)}


def test_inference_stands_beside_what_the_poster_prints(measured):
    times = {"poster-softmax": 200.0, "poster-mos3": 320.0, "mfs-inputs": 300.0, "mos5": 500.0}
    cells = {(head, "published", *FP32): (ms,) for head, ms in times.items()}
    cells |= {("poster-mos3", "ours", *FP32): (250.0,)}  # without a softmax of ours there is nothing to compare with
    lines = tables.derived(measured(cells, {FP32: (100.0,)}, kind="inference", setting="gpt2-small"))
    assert [line for line in lines if line.startswith("Time over")] == [
        # printed: 84, 130 and 138 ms
        "Time over poster-softmax's, published fp32 default: poster-mos3 1.60 (poster 1.55), "
        "mfs-inputs 1.50 (poster 1.64), mos5 2.50."
    ]
    assert not any(line.startswith("Fraction") for line in lines)


def test_a_contended_measurement_says_so_in_its_title(run):
    assert "CONTENDED" not in tables.title(run)
    contended = run.model_copy(update={"contended": ("load 3.00 at the start",)})
    assert tables.title(contended).endswith(" (CONTENDED: load 3.00 at the start)")


def test_the_markdown_of_a_device_is_made_of_its_records(run, tmp_path):
    other = run.model_copy(update={"device": "Another", "kind": "eval", "cells": run.cells[:1]})
    for number, each in enumerate((run, run.model_copy(update={"kind": "memory", "products": ()}), other)):
        save(each, tmp_path / "bench" / "x" / f"{number}.json")
    assert tables.write(tmp_path) == [tmp_path / "tables" / f"bench_{name}.md" for name in ("a_cpu_64", "another")]
    text = (tmp_path / "tables" / "bench_a_cpu_64.md").read_text()
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "# Benchmarks on A CPU (64)",
        "## Head, forward and backward pass, ptb: N = 700, d = 200, V = 10,000, ms",
        "## Peak extra memory of one head step, ptb: N = 700, d = 200, V = 10,000, MiB",
        "## Targets",
    ]
    assert "| ours | fp32 default | 50.0 (2.00x) | 300 (0.90x) |" in text
    assert "torch 2.13.0, harness at abc, 2026-11-21T00:00:00+00:00; medians of 3 interleaved rounds." in text
    tables.write(tmp_path)
    assert (tmp_path / "tables" / "bench_a_cpu_64.md").read_text() == text


def test_without_records_there_is_no_table(tmp_path):
    with pytest.raises(ExecutionError, match="holds no measurements"):
        tables.write(tmp_path)
