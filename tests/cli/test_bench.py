"""`harness bench` and `harness doctor`, at sizes that say nothing of speed."""

import json
import re
from types import SimpleNamespace

import pytest
import torch
from onednn import sitecustomize as onednn

from harness.benchmarks import plan_memory, record, tables
from harness.execution import doctor
from harness.kernels import products

pytestmark = pytest.mark.system

TINY = ("--setting", "tiny", "--rounds", "1", "--route", "default", "--precision", "fp32", "--heads", "softmax,mos2")


@pytest.fixture(autouse=True)
def _quiet_machine(monkeypatch):
    monkeypatch.setattr(record.limits, "cpus_available", lambda: 1000)


@pytest.mark.parametrize("kind", ["head", "step", "eval"])
def test_a_table_is_shown_and_the_raw_numbers_are_written(fresh, harness, kind):
    done = harness("bench", kind, *TINY, "--json", "out.json")
    assert done.code == 0
    assert "ours " in done.out
    assert "published " in done.out
    record = json.loads((fresh / "out.json").read_text())
    assert (record["kind"], record["setting"], record["rounds"], record["threads"]) == (kind, "tiny", 1, 1)
    assert {(cell["head"], cell["impl"]) for cell in record["cells"]} >= {("mos2", "ours"), ("softmax", "target-only")}
    assert not (fresh / "results").exists()


def test_memory_is_measured_at_ten_times_the_tokens_too(fresh, harness):
    options = (*TINY[:2], *TINY[4:-1], "softmax", "--impl", "published")  # without rounds
    assert harness("bench", "memory", *options, "--json", "out.json").code == 0
    found = [json.loads((fresh / name).read_text()) for name in ("out.json", "out_n700.json")]
    shown = [(each["kind"], each["tokens"], len(each["cells"])) for each in found]
    assert shown == [("memory", 70, 2), ("memory", 700, 2)]


def test_backbones_by_context_length_are_shown_and_saved(fresh, harness):
    options = ("--backbones", "lstm,gpt2", "--contexts", "2,4,8", "--rounds", "1", "--device", "cpu")
    done = harness("bench", "backbone", *options, "--save")
    assert done.code == 0
    assert "c2 T^2 = c1 T at" in " ".join(done.out.split())
    (record,) = (fresh / "results" / "bench").glob("backbone_*.json")
    costs = json.loads(record.read_text())["costs"]
    assert [(each["backbone"], each["context"]) for each in costs] == [
        (b, T) for b in ("lstm", "gpt2") for T in (2, 4, 8)
    ]
    assert (fresh / "results" / "tables" / f"{record.stem}.md").exists()
    assert (fresh / "results" / "plots" / record.stem / "step_time.svg").exists()


def test_targets_that_do_not_apply_are_told(fresh, harness):
    done = harness("bench", "eval", *TINY, "--assert-targets")
    assert done.code == 2
    assert done.err.endswith("no target applies to what was measured\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["head", "--setting", "imagenet"], "--setting imagenet: expected ptb, wt2, gpt2-small, smollm2, llama-1b"),
        (["head", "--heads", "mos"], "--heads mos: expected "),
        (["eval", "--impl", "none"], "--impl none: expected ours, "),
        (["step", "--precision", "fp8"], "--precision fp8: expected fp32, bf16 on cpu"),
        (["memory", "--route", "mkl"], "--route mkl: expected default, onednn or both"),
        (["head", "--precision", ""], "--precision: expected some of fp32, bf16 on cpu"),
        (["memory", "--precision", ","], "--precision: expected some of fp32, bf16 on cpu"),
        (["head", "--graph"], "--graph: CUDA graphs need a GPU; leave out --graph"),
        (["step", "--setting", "gpt2-small", "--route", "default"], "bench step: setting gpt2-small"),
        (["head", "--device", "cuda"], "a GPU was requested, but torch finds none"),
        (["step", "--backbone", "gpt2"], "--backbone gpt2: expected transformer_encoder, lstm"),
        (["table"], "results/bench holds no measurements"),
        (["backbone", "--contexts", "8,16,x"], "--contexts 8,16,x: expected whole numbers, separated by commas"),
        (["backbone", "--contexts", "8,16"], "--contexts: expected at least 3 different lengths from 1"),
        (["backbone", "--backbones", "lstm,rnn"], "--backbones rnn: expected lstm, gru"),
    ],
)
def test_a_mistake_is_one_sentence_and_code_2(fresh, harness, monkeypatch, arguments, sentence):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    done = harness("bench", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(sentence)
    assert done.err.count("\n") == 1


def test_a_loaded_machine_is_flagged_and_refused_when_strict(fresh, harness, monkeypatch):
    monkeypatch.setattr(record.limits, "cpus_available", lambda: 0)
    done = harness("bench", "eval", *TINY)
    assert done.code == 0
    assert "CONTENDED" in done.out
    done = harness("bench", "eval", *TINY, "--strict")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("--strict: the machine is contended: load ")


@pytest.mark.parametrize(("verdict", "code"), [("yes", 0), ("no", 1)])
def test_targets_can_be_asserted(fresh, harness, monkeypatch, verdict, code):
    rows = [["figure", "met"], ["made up", verdict]]
    monkeypatch.setattr(tables, "target_rows", lambda measured: rows)
    assert harness("bench", "eval", *TINY, "--assert-targets").code == code
    assert harness("bench", "eval", *TINY).code == 0


@pytest.mark.parametrize(("planned", "code"), [(100, 0), (140, 1)])
def test_a_plan_of_memory_that_is_not_measured_ends_with_code_1(fresh, harness, monkeypatch, planned, code):
    step = plan_memory.PlannedStep(size="tiny", head="softmax", planned=planned, measured=100, kept=None)
    found = plan_memory.PlannedSteps(device="a processor", commit="abc", started="today", steps=(step,))
    monkeypatch.setattr(plan_memory, "measure", lambda *_, **__: [found])
    assert harness("bench", "plan-memory").code == code


@pytest.mark.parametrize("options", [(), ("--again",)])
def test_the_doctor_tells_machine_and_probe(harness, monkeypatch, tmp_path, options):
    asked = []
    monkeypatch.chdir(tmp_path)
    found = SimpleNamespace(route="onednn", speedup=2.125, error=2.5e-7, exact=True, cpu="A CPU")
    monkeypatch.setattr(products, "load_probe", lambda again: asked.append(again) or found)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(doctor, "has_triton", lambda: False)
    done = harness("doctor", *options)
    assert (done.code, asked) == (0, [bool(options)])
    assert "Triton:          not installed" in done.out
    assert f"kept in:         {products.probe_file()} cannot be written" in done.out
    assert "processor:       A CPU" in done.out
    assert (
        "by oneDNN; oneDNN is 2.12 times as fast as the default and as exact as float32 (relative error 2.5e-07)"
        in done.out
    )


@pytest.mark.parametrize(
    ("imitated", "sentence"),
    [
        ("inexact", r"by torch's default; oneDNN is [\d.]+ times as fast as the default and NOT as exact as float32"),
        ("absent", r"by torch's default; this torch has no oneDNN"),
    ],
)
def test_where_onednn_is_not_exact_the_doctor_says_so_and_no_benchmark_takes_it(
    harness, monkeypatch, tmp_path, imitated, sentence
):
    onednn.imitate(imitated, monkeypatch.setattr)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    assert re.search(f"matrix products: float32 on the CPU {sentence}", harness("doctor").out)
    done = harness("bench", "head", *TINY, "--route", "onednn")  # the last --route counts
    assert (done.code, done.out) == (2, "")
    assert done.err == "--route onednn: its products are not exact in float32 on this machine (harness doctor)\n"
    done = harness("bench", "head", *TINY, "--route", "both")
    assert done.code == 0
    assert "fp32 default" in done.out
    assert "fp32 onednn" not in done.out


def test_saved_records_become_the_table_of_the_device(fresh, harness):
    done = harness("bench", "head", *TINY, "--save")
    assert done.code == 0
    (record,) = (fresh / "results" / "bench").glob("*/head_tiny_n70.json")
    (table,) = (fresh / "results" / "tables").glob("bench_*.md")
    assert table.name == f"bench_{record.parent.name}.md"
    text = table.read_text()
    table.unlink()
    assert harness("bench", "table").code == 0
    assert table.read_text() == text


def test_a_fuller_record_is_replaced_when_told_so_only(fresh, harness):
    assert harness("bench", "eval", *TINY, "--save", "--replace").code == 0
    (record,) = (fresh / "results" / "bench").glob("*/eval_tiny_n70.json")
    before = record.read_bytes()
    done = harness("bench", "eval", *TINY, "--impl", "ours", "--save")
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("--save: results/bench/")
    assert done.err.endswith(" nothing was saved; use --replace to save all the same\n")
    assert "ours " in done.out  # what was measured is not lost
    assert record.read_bytes() == before
    assert harness("bench", "eval", *TINY, "--impl", "ours", "--save", "--replace").code == 0
    assert record.read_bytes() != before
