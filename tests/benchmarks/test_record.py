"""What is kept of a measurement, and what would be lost."""

import pytest
import torch

from harness.benchmarks import record
from harness.benchmarks.record import (
    Measurement,
    ProductRate,
    about,
    load,
    loses,
    save,
    unsteady,
)
from harness.errors import ExecutionError

FP32 = ("fp32", "default")


@pytest.fixture
def run(measured):
    """Softmax by three implementations, of which one failed."""
    cells = {
        ("softmax", "ours", *FP32): (95.0, 96.0, 99.0),
        ("softmax", "published", *FP32): (116.0,),
        ("softmax", "torch", *FP32): "failed: RuntimeError",
    }
    return measured(cells)


def test_a_measurement_is_read_as_it_was_saved(run, tmp_path):
    save(run, tmp_path / "bench" / "a.json")
    assert load(Measurement, tmp_path / "bench" / "a.json") == run
    (tmp_path / "bench" / "a.json").write_text('{"kind": "head"}')
    with pytest.raises(ExecutionError, match=r"a\.json is not a measurement of harness bench"):
        load(Measurement, tmp_path / "bench" / "a.json")


def test_a_fuller_or_quieter_record_is_reported(run, tmp_path):
    place = tmp_path / run.place
    fewer, loud = run.model_copy(update={"cells": run.cells[1:]}), run.model_copy(update={"contended": ("load 3",)})
    assert loses(fewer, place) == ""
    save(run, place)
    assert loses(run, place) == loses(run.model_copy(update={"cells": run.cells[:-1]}), place) == ""  # it was lacking
    assert loses(fewer, place) == f"{place} has 1 cells more than this measurement, such as softmax ours fp32 default"
    assert loses(loud, place) == f"{place} was measured on a quiet machine, and this measurement is contended"
    save(loud, place)
    assert loses(loud, place) == ""


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "head_ptb_n700.json"),
        ({"threads": 2, "graph": True}, "head_ptb_n700_t2_graph.json"),
        ({"kind": "step", "backbone": "lstm"}, "step_ptb_n700_lstm.json"),
    ],
)
def test_what_was_compared_is_in_the_name_of_the_file(run, fields, name):
    assert run.model_copy(update=fields).place.as_posix() == f"a_cpu_64/{name}"


def test_a_product_rate_that_varies_by_more_than_15_percent_is_reported():
    steady = ProductRate(precision="fp32", route="default", gflops=(93.0, 100.0, 107.0))
    assert unsteady([steady]) == []
    varied = ProductRate(precision="bf16", route="onednn", gflops=(92.0, 100.0, 108.0))
    assert unsteady([steady, varied]) == ["the bf16 onednn product rate varied by 16 %"]


def test_load_that_leaves_too_few_cores_is_reported(monkeypatch):
    monkeypatch.setattr(record.limits, "cpus_available", lambda: 4)
    monkeypatch.setattr(record.environment, "load_average", lambda: 3.2)
    sentence = "load 3.20 at the start on 4 cores, of which this measurement uses 2"
    assert [about(torch.device("cpu"), threads)["contended"] for threads in (1, 2)] == [(), (sentence,)]
