"""The forms of the loss: which fit where, how many logits they store, and that they are exact on odd sizes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from harness import extensions
from harness.errors import ExecutionError
from harness.kernels import forms, planted

CPU = torch.device("cpu")
CASES = {case.name: case for case in planted.CASES}
LEAN, STORED = forms.LEAN, replace(forms.STORED, fits=lambda mixture, gradients: gradients)


class OnGPU(torch.Tensor):
    """A tensor on the CPU that says that it is on a GPU."""

    device = torch.device("cuda")


def test_what_can_be_evaluated_in_chunks():
    mixture, _ = planted.batch(CASES["one component"], CPU)
    facets_NFE = mixture.facets_NFE.detach()

    def known(each):
        return forms.has_chunks(mixture.changed(facets_NFE=each))

    assert all(known(facets_NFE.to(dtype)) for dtype in (torch.float32, torch.float64, torch.bfloat16))
    assert known(facets_NFE[:1])
    assert not known(facets_NFE.half())
    assert not forms.CHUNKS_OF_EQUATIONS.fits(mixture.changed(facets_NFE=facets_NFE.half()), True)
    assert not known(facets_NFE[:0])
    assert not known(facets_NFE.to("meta"))
    with forms.reference_only():
        assert not known(facets_NFE)
        with forms.reference_only():
            pass
        assert not known(facets_NFE)
    assert known(facets_NFE)


MEMORY = 16 * 700 * 2 * 61 * 4  # a sixteenth of it has all logits of the batch
CAP = planted.SoftCap(c=3.0)  # its slopes take as much


@pytest.mark.parametrize(
    ("at_once", "memory", "logit_map", "gradients", "on_gpu", "stored"),
    [
        (699, MEMORY, None, True, True, True),
        (700, MEMORY, None, True, True, False),  # one chunk has all of them
        (699, MEMORY - 16, None, True, True, False),
        (699, MEMORY, None, False, True, False),
        (699, MEMORY, None, True, False, False),
        (699, MEMORY, CAP, True, True, False),
        (699, 2 * MEMORY, CAP, True, True, True),
        (699, 2 * MEMORY, torch.tanh, True, True, False),
    ],
)
def test_a_gpu_stores_all_logits_where_they_are_more_than_a_chunk_and_a_small_part_of_its_memory(
    monkeypatch, at_once, memory, logit_map, gradients, on_gpu, stored
):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=memory))
    monkeypatch.setattr(forms, "tokens_per_chunk", lambda matrix, partitions: at_once)
    mixture, _ = planted.batch(CASES["more tokens than are compared"], CPU)
    there = mixture.changed(facets_NFE=mixture.facets_NFE.detach().as_subclass(OnGPU)) if on_gpu else mixture
    there = there if logit_map is None else there.changed(logit_map=logit_map)
    assert forms.STORED.fits(there, gradients) == stored
    for installed in (True, False):
        monkeypatch.setattr(forms, "has_triton", lambda installed=installed: installed)
        assert forms.STORED_ROWS.fits(there, gradients) == (stored and installed)


@pytest.mark.needs("gpu")
@pytest.mark.parametrize(
    ("module", "function", "call", "options"),
    [
        ("triton_rows", "combine_rows_", forms._triton_rows, {}),
        ("triton_evaluation", "fused_log_sum_exp", forms._triton_log_sums, {"precision": "bf16"}),
    ],
)
def test_a_kernel_of_triton_is_asked_for_by_name_when_it_is_called(monkeypatch, module, function, call, options):
    module = pytest.importorskip(f"harness.gpu.{module}")
    monkeypatch.setattr(module, function, lambda *given, **more: (given, more))
    forms._kernel.cache_clear()
    try:
        assert call("facets", "weight", **options) == (("facets", "weight"), options)
    finally:
        forms._kernel.cache_clear()


def test_a_missing_kernel_of_triton_is_said_in_words(monkeypatch):
    monkeypatch.setattr(forms, "TRITON_ROWS", "harness.gpu.nothing:kernel")
    monkeypatch.setattr(extensions, "is_there", lambda module: False)
    with pytest.raises(ExecutionError, match="a kernel of Triton belongs to the extension 'gpu'"):
        forms._triton_rows()
