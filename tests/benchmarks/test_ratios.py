"""What is derived from a measurement, against arithmetic by hand."""

import math

import pytest

from harness.benchmarks import ratios

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


def test_nothing_stands_in_for_a_base_that_was_not_measured(measured):
    cells = {(head, impl, *ONEDNN): (9.0,) for head in ("softmax", "mos10", "mos15") for impl in ("ours", "published")}
    found = measured(cells)
    assert math.isnan(found.base("mos10"))
    assert not any("published / ours" in target.text for target, _ in ratios.outcomes(found))
    reordered = measured({("mos2", "published", *BF16): (1.0,), ("mos2", "published", *FP32): (2.0,)})
    assert reordered.base("mos2") == 2.0


def test_the_fraction_of_the_product_rate(run):
    # 6 x 700 x 15 x 10,000 x 200 = 126 GFLOP in 1.438 s: 87.6 GFLOP/s of 100
    assert ratios.product_fraction(run, "mos15", FP32) == pytest.approx(126 / 1.438 / 100)
    assert math.isnan(ratios.product_fraction(run, "mos15", ONEDNN))
    assert run.model_copy(update={"kind": "eval"}).gflop("mos15") == pytest.approx(42)  # without the backward pass


def test_the_growth_of_memory_with_k(measured):
    # N d floats are 700 x 200 x 4 bytes = 0.534 MiB; 30 + 2.5 of them a component, softmax is no mixture
    one = 700 * 200 * 4 / 2**20
    cells = {(f"mos{k}", "ours", *FP32): (30 + 2.5 * k * one,) for k in (2, 5, 15)} | {
        ("softmax", "ours", *FP32): (9.0,)
    }
    found = measured(cells, kind="memory")
    assert ratios.memory_slope(found, "ours", FP32) == pytest.approx(2.5)
    assert math.isnan(ratios.memory_slope(found, "published", FP32))


def test_targets_are_those_of_the_measurement_that_are_known(run):
    found = {target.text: (round(value, 3), target.met(value)) for target, value in ratios.outcomes(run)}
    assert found == {
        "Softmax, linear + cross_entropy / ours, worse route": (round(80 / 96, 3), False),
        "MoS-15 / (15 x Softmax), ours, best fp32 route": (round(900 / (15 * 58), 3), True),
        "ours / fastest baseline of same products, worst cell": (1.2, False),
    }
    for update in ({"device_type": "cuda"}, {"tokens": 1400}):
        more = ratios.outcomes(run.model_copy(update=update))
        assert [target.text for target, _ in more] == ["ours / fastest baseline of same products, worst cell"]


def test_baselines_and_single_forms_of_ours_are_compared_apart(measured):
    taken = {"ours": 8.0, "ours-chunked": 9.0, "ours-stored": 5.0, "published": 12.0, "torch": 10.0}
    run = measured({("softmax", impl, *FP32): (ms,) for impl, ms in taken.items()})
    cell = ("softmax", "ours", *FP32)
    assert ratios.against_fastest(run) == {cell: (0.8, "torch")}
    assert ratios.against_forms(run) == {cell: (1.6, "ours-stored")}
