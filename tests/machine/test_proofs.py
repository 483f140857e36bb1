"""What is proved of a GPU: made once, kept for exactly this machine and code, and what failed is not used."""

import inspect
import json
import subprocess
import sys
import threading
from types import SimpleNamespace

import handmade
import pytest
import torch

from harness import kernels
from harness.distributions import Mixture
from harness.errors import ExecutionError
from harness.kernels import devices, rows
from harness.machine import proofs
from harness.machine.proofs import Proof
from harness.plan.specs import TrainSpec
from harness.training import cuda_graph
from harness.training.cuda_graph import graphed
from harness.trial.session import Session
from harness.trial.task import Task

CPU, GPU = torch.device("cpu"), torch.device("cuda")
WRONG = {"rows": "the loss is wrong by 1.0e-01 (bf16, many words; at most 1.0e-05 is rounding)"}
SENTENCE = (
    f"Switched off on this machine (a GPU): the Triton kernel for training, since {WRONG['rows']}; "
    "torch's own operations run instead"
)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """A cache of the test's own, and nothing known before or after it."""
    monkeypatch.setattr(proofs, "CACHE", tmp_path / "proofs")
    monkeypatch.setattr(proofs, "_known", {})
    monkeypatch.setattr(proofs, "device_name", lambda device: "a GPU")
    return tmp_path / "proofs"


@pytest.fixture
def makes(monkeypatch):
    """How often a proof was made; it finds the rows' kernel wrong."""
    calls = []

    def made(device):
        calls.append(device)
        return Proof(device="a GPU", failed=dict(WRONG), seconds=float(len(calls)), made="now"), True

    monkeypatch.setattr(proofs, "make_proof", made)
    return calls


def forget():
    """As a new process does."""
    proofs._known.clear()


def test_on_the_cpu_nothing_is_proved_and_nothing_is_kept(monkeypatch, cache):
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("a process was started"))
    assert proofs.proof_for(CPU, again=True).failed == {}
    assert proofs.may_use("graph", CPU)
    assert proofs.switched_off(CPU) == ()
    assert not cache.exists()


def test_a_proof_is_made_once_and_read_by_the_next_process(makes):
    assert proofs.proof_for(GPU).failed == WRONG
    proofs.proof_for(torch.device("cuda", 0))
    forget()
    assert proofs.proof_for(GPU) == Proof(device="a GPU", failed=WRONG, seconds=1.0, made="now")
    assert len(makes) == 1


def test_again_makes_it_again_and_keeps_that(makes):
    proofs.proof_for(GPU)
    assert proofs.proof_for(GPU, again=True).seconds == 2.0
    forget()
    assert proofs.proof_for(GPU).seconds == 2.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device_name", lambda device: "another GPU"),
        ("_driver", lambda: "another driver"),
        ("_triton", lambda: "another Triton"),
        ("_source", lambda: "other code"),
    ],
)
def test_another_machine_or_code_is_proved_anew(makes, monkeypatch, name, value):
    proofs.proof_for(GPU)
    forget()
    monkeypatch.setattr(proofs, name, value)
    proofs.proof_for(GPU)
    assert len(makes) == 2


@pytest.mark.parametrize(("module", "name"), [(torch, "2.99.0"), (proofs.harness, "9.9")])
def test_another_version_is_proved_anew(makes, monkeypatch, module, name):
    proofs.proof_for(GPU)
    forget()
    monkeypatch.setattr(module, "__version__", name)
    proofs.proof_for(GPU)
    assert len(makes) == 2


def test_an_edited_kernel_is_other_code(monkeypatch, tmp_path):
    for place in (
        "kernels/triton_rows.py",
        "training/cuda_graph.py",
        "training/step.py",
        "trial/prove.py",
        "distributions.py",
    ):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("1")
    monkeypatch.setattr(proofs.harness, "__file__", str(tmp_path / "__init__.py"))
    seen = {proofs._source()}
    for place in ("kernels/triton_rows.py", "training/cuda_graph.py", "training/step.py"):
        (tmp_path / place).write_text("2")
        seen.add(proofs._source())
    assert len(seen) == 4


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"device": 1}', '{"device": "", "failed": {"odd": ""}, "seconds": 1, "made": ""}']
)
def test_a_file_that_is_no_proof_is_made_again(makes, cache, content):
    cache.mkdir()
    proofs.proof_file(torch.device("cuda", 0)).write_text(content)
    assert proofs.proof_for(GPU).failed == WRONG


def test_a_cache_that_cannot_be_written_keeps_nothing_and_the_proof_is_made_all_the_same(makes, cache):
    cache.write_text("a file where the folder would be")
    assert proofs.proof_for(GPU).failed == WRONG
    forget()
    proofs.proof_for(GPU)
    assert len(makes) == 2


def test_of_processes_that_start_together_one_makes_it(makes, monkeypatch):
    begun = threading.Barrier(2)
    found, quick = [], proofs.make_proof

    def worker():
        begun.wait()
        found.append(proofs._kept_or_made(torch.device("cuda", 0), again=False))

    def slow(device):
        threading.Event().wait(0.2)
        return quick(device)

    monkeypatch.setattr(proofs, "make_proof", slow)
    workers = [threading.Thread(target=worker) for _ in range(2)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert (len(found), len(makes)) == (2, 1)


def test_the_process_of_a_proof_runs_and_reports_every_part():
    """On the CPU, where it proves the evaluation by torch's own operations."""
    proof, tried = proofs.make_proof(CPU)
    assert (proof.failed, tried) == ({}, True)


def stand_in(monkeypatch, script: str):
    """Processes of a proof run a script: `left` holds the parts, `say` reports."""
    head = f"""
        import json, os, sys
        left = sys.argv[1].split(",")
        def say(**told): print({proofs.MARK!r} + json.dumps(told), flush=True)
    """
    text = inspect.cleandoc(head) + "\n" + inspect.cleandoc(script)
    monkeypatch.setattr(proofs, "_command", lambda device, left, failed: [sys.executable, "-c", text, ",".join(left)])


def test_a_part_that_ends_its_process_has_failed_and_the_others_are_proved(monkeypatch):
    stand_in(
        monkeypatch,
        """
        print("what a library says")
        say(begun="cuda")
        for part in left:
            if part == "rows":
                os.abort()
            say(part=part, fault="")
        """,
    )
    proof, tried = proofs.make_proof(GPU)
    assert (proof.failed, tried) == ({"rows": "its process ended with SIGABRT"}, True)


def test_after_a_part_that_raises_another_process_goes_on(monkeypatch):
    stand_in(
        monkeypatch,
        """
        say(begun="cuda")
        for part in left:
            fault = "RuntimeError: misaligned address" if part in ("lean", "log_sum_exp") else ""
            say(part=part, fault=fault)
            if fault:
                break
        """,
    )
    proof, _ = proofs.make_proof(GPU)
    assert proof.failed == dict.fromkeys(("lean", "log_sum_exp"), "RuntimeError: misaligned address")


def test_a_part_that_never_ends_has_failed(monkeypatch):
    def run(command, **options):
        left = command[4].split(",")
        lines = [{"begun": "cuda"}, *({"part": part, "fault": ""} for part in left if part != "graph")]
        out = "\n".join(proofs.MARK + json.dumps(line) for line in lines)
        raise subprocess.TimeoutExpired(command, options["timeout"], output=out.encode())

    monkeypatch.setattr(subprocess, "run", run)
    proof, _ = proofs.make_proof(GPU)
    assert proof.failed == {"graph": f"its process took more than {proofs.SECONDS} s"}


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ('say(tried="CUDA out of memory")', "CUDA out of memory"),
        ('say(begun="cuda"); say(part="lean", fault=""); say(tried="CUDA out of memory")', "CUDA out of memory"),
        ("sys.exit(3)", "its process ended with exit code 3"),
    ],
)
def test_a_device_that_cannot_be_had_is_tried_again_by_the_next_process(monkeypatch, cache, script, cause):
    stand_in(monkeypatch, script)
    failed = proofs.proof_for(GPU).failed
    assert failed == dict.fromkeys(proofs.PARTS, f"it could not be tried: {cause}")
    assert not list(cache.glob("*.json"))


@pytest.mark.parametrize("failed", ["rows", "log_sum_exp", "lean", None])
def test_kernels_that_failed_do_not_run(monkeypatch, failed):
    monkeypatch.setattr(devices, "has_triton", lambda: True)
    monkeypatch.setattr(devices, "triton_kernels", lambda: devices.Kernels("rows of Triton", "sums of Triton"))
    with proofs.assume_failed(GPU, {} if failed is None else {failed: "wrong"}):
        assert devices.row_kernel(GPU) == (rows.combine_rows_ if failed == "rows" else "rows of Triton")
        assert devices.log_sum_exp_kernel(GPU) == (None if failed == "log_sum_exp" else "sums of Triton")
        assert devices.may_use_lean(GPU) == (failed != "lean")
    with devices.sizes_only():  # and planning proves nothing
        assert devices.may_use_lean(GPU)


def test_where_the_lean_evaluation_failed_the_reference_runs(monkeypatch):
    mixture = Mixture(torch.ones(1, 1, 1, 2, requires_grad=True), None, torch.zeros(4, 2))
    monkeypatch.setattr(kernels, "_lean", lambda *arguments: pytest.fail("the lean evaluation ran"))
    monkeypatch.setattr(proofs, "may_use", lambda part, device: part != "lean")
    for loss in (mixture.mean_nll(torch.tensor([[1]])), mixture.nll(torch.tensor([[1]]))):
        torch.testing.assert_close(loss.sum().detach(), torch.tensor(4.0).log())


def step_on_gpu(cuda_graph: str):
    """As much of a step as is asked before it is recorded."""
    train = TrainSpec(optimizer="sgd", lr=1.0, epochs=1, batch_size=2, seq_len=4, cuda_graph=cuda_graph)
    return SimpleNamespace(train=train, loss_sum=SimpleNamespace(is_cuda=True, device=GPU))


def test_a_graph_that_failed_is_not_recorded(monkeypatch):
    monkeypatch.setattr(cuda_graph, "GraphStep", lambda *given: pytest.fail("recorded"))
    logged = []
    with proofs.assume_failed(GPU, {"graph": "after 2 steps of a small lstm a weight is not that of eager steps"}):
        step = step_on_gpu("auto")
        assert graphed(step, None, log=logged.append) is step
        assert "the CUDA graph of the training step, since after 2 steps of a small lstm a weight" in logged[0]
        with pytest.raises(ExecutionError, match=r"cuda_graph is on, but its proof failed .* `harness doctor --again`"):
            graphed(step_on_gpu("on"), None, log=logged.append)


def test_a_graph_that_is_proved_is_recorded_and_one_that_is_off_asks_for_no_proof(monkeypatch, makes):
    monkeypatch.setattr(cuda_graph, "GraphStep", lambda step, segment, record, parts: record)
    with proofs.assume_failed(GPU, {}):
        assert graphed(step_on_gpu("auto"), None, log=pytest.fail) is cuda_graph.captured
    step = step_on_gpu("off")
    assert graphed(step, None, log=pytest.fail) is step
    assert makes == []


def test_the_record_of_a_trial_says_what_was_switched_off(makes, tmp_path):
    def session(device):
        about = {"suite": "small", "runs": tmp_path, "data": tmp_path, "device": device, "executor": "inline"}
        return Session(Task(spec=handmade.record().spec, **about), None)

    on_gpu = session("cuda")
    assert on_gpu.environment(graphed=False, retries=0).switched_off == (SENTENCE,)
    assert on_gpu.facts["switched off"] == "rows"
    assert session("cpu").environment(graphed=False, retries=0).switched_off == ()
