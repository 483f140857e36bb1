"""What the process of a proof does with each part, and what it says."""

import json

import pytest
import torch

from harness.kernels import devices, rows
from harness.kernels.devices import Kernels
from harness.machine import proofs
from harness.trial import prove
from harness.trial.prove import Accelerators, proved

CPU = torch.device("cpu")


def wrong_rows(*given):
    result = rows.combine_rows_(*given)
    return result._replace(nll=1.01 * result.nll)


def raising(*given, **options):
    raise RuntimeError("CUDA error: misaligned address\nCompile with TORCH_USE_CUDA_DSA")


@pytest.fixture
def quick(monkeypatch):
    """The proofs of kernels and graph replaced by what they are called with."""
    calls = []
    monkeypatch.setattr(prove, "fault_of_graph", lambda device, record: calls.append(devices.row_kernel(device)) or "")
    return calls


def test_all_that_is_right_is_said_to_be(quick):
    right = Accelerators(Kernels(), lambda work: work)
    assert list(proved(CPU, right, ["lean", "rows", "graph"], {})) == [
        (p, "", False) for p in ("lean", "rows", "graph")
    ]


def test_a_wrong_kernel_fails_and_the_graph_is_proved_with_what_runs_in_its_place(quick):
    failed = {}
    found = list(proved(CPU, Accelerators(Kernels(wrong_rows), lambda work: work), ["rows", "graph"], failed))
    assert [(part, raised) for part, _, raised in found] == [("rows", False), ("graph", False)]
    assert failed == {"rows": found[0][1]}
    assert "the loss is wrong by 1.0e-02" in failed["rows"]
    assert quick == [rows.combine_rows_]


def test_a_right_kernel_takes_part_in_the_graph(quick):
    def same(*given):
        return rows.combine_rows_(*given)

    list(proved(CPU, Accelerators(Kernels(same), lambda work: work), ["graph"], {}))
    assert quick == [same]


@pytest.mark.parametrize("part", ["rows", "log_sum_exp"])
def test_what_raises_has_failed_with_its_first_line(part):
    given = Accelerators(Kernels(raising, raising), None)
    assert list(proved(CPU, given, [part], {})) == [(part, "RuntimeError: CUDA error: misaligned address", True)]


def test_kernels_of_the_lean_evaluation_are_not_tried_where_that_is_wrong(monkeypatch):
    monkeypatch.setattr(prove, "TORCHS", Kernels(wrong_rows))
    given = Accelerators(Kernels(raising, raising), None)
    found = list(proved(CPU, given, ["lean", "rows", "log_sum_exp"], {}))
    assert "the loss is wrong" in found[0][1]
    assert [fault for _, fault, _ in found[1:]] == ["", ""]


def test_want_of_memory_says_nothing_of_a_part():
    def full(*given):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        list(proved(CPU, Accelerators(Kernels(full), None), ["rows"], {}))


def test_the_process_says_a_line_for_each_part_and_ends_after_one_that_raises(monkeypatch, capsys):
    monkeypatch.setattr(prove, "accelerators", lambda device: Accelerators(Kernels(raising), None))
    prove.main("cpu", "rows,graph", "lean")
    lines = [json.loads(line.removeprefix(proofs.MARK)) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"begun": "cpu"}, {"part": "rows", "fault": ""}, {"part": "graph", "fault": ""}]
    prove.main("cpu", "rows,graph", "")
    lines = [json.loads(line.removeprefix(proofs.MARK)) for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [{"part": "rows", "fault": "RuntimeError: CUDA error: misaligned address"}]


def test_a_device_that_is_not_there_says_nothing_of_the_parts(monkeypatch, capsys):
    def absent(*size, device):
        raise RuntimeError("CUDA-capable device(s) is/are busy or unavailable")

    monkeypatch.setattr(torch, "zeros", absent)
    prove.main("cpu", "rows", "")
    said = json.loads(capsys.readouterr().out.removeprefix(proofs.MARK))
    assert said == {"tried": "RuntimeError: CUDA-capable device(s) is/are busy or unavailable"}
