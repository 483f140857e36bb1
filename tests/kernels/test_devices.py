"""Which form of an inner step runs where, and the evaluation around the fused log-sum-exp, which only a GPU has."""

import math

import pytest
import torch

from harness.distributions import LOGIT_MAPS, Mixture, log_prior
from harness.kernels import devices, reference_only, rows
from harness.machine import proofs


@pytest.mark.parametrize("installed", [False, True])
def test_without_a_gpu_or_without_triton_torch_does_it_all(monkeypatch, installed):
    monkeypatch.setattr(devices, "has_triton", lambda: installed)
    for device in ["cpu"] if installed else ["cpu", "cuda"]:
        assert devices.row_kernel(torch.device(device)) is rows.combine_rows_
        assert devices.log_sum_exp_kernel(torch.device(device)) is None


def test_a_gpu_with_triton_takes_the_kernels_that_are_proved():
    pytest.importorskip("triton")
    with proofs.assume_failed(torch.device("cuda"), {}):
        assert devices.row_kernel(torch.device("cuda")).__module__ == "harness.kernels.triton_rows"
        assert devices.log_sum_exp_kernel(torch.device("cuda")).__module__ == "harness.kernels.triton_evaluation"


@pytest.mark.parametrize("log_epsilon", [None, 0.01])
@pytest.mark.parametrize(("partitions", "with_bias"), [((1,), True), ((1, 1, 1), False), ((1, 4, 1), True)])
def test_evaluation_by_fused_log_sums_is_the_references(monkeypatch, partitions, with_bias, log_epsilon):
    calls = []

    def fused(rows_rE, weight_vE, bias_v, *, precision):
        assert rows_rE.ndim == 2
        calls.append(precision)
        z = rows_rE.double() @ weight_vE.double().t() + (0 if bias_v is None else bias_v.double())
        return z.logsumexp(-1).float()

    generator = torch.Generator().manual_seed(0)
    facets, weight = torch.randn(2, 9, sum(partitions), 5, generator=generator), torch.randn(13, 5, generator=generator)
    bias = torch.randn(13, generator=generator) if with_bias else None
    prior = log_prior(torch.randn(2, 9, len(partitions), generator=generator)) if len(partitions) > 1 else None
    mixture = Mixture(facets, prior, weight, bias, partitions=partitions, log_epsilon=log_epsilon)
    targets = torch.randint(13, (2, 9), generator=generator)
    with reference_only():
        expected = mixture.nll(targets)
    monkeypatch.setattr(devices, "log_sum_exp_kernel", lambda device: fused)
    torch.testing.assert_close(mixture.nll(targets), expected, rtol=0, atol=2e-6)
    assert calls
    assert set(calls) == {"fp32"}


def test_evaluation_by_fused_log_sums_takes_bfloat16(monkeypatch):
    # logits 0 and -64.5 * 1.0078125 = -65.00390625, which is -65 in bfloat16; the normaliser is 1
    facets, weight = (torch.tensor(values).bfloat16() for values in ([[[[1.0078125]]]], [[0.0], [-64.5]]))
    monkeypatch.setattr(devices, "log_sum_exp_kernel", lambda device: lambda rows_rE, *_, **__: torch.zeros(1))
    nll = Mixture(facets, None, weight).nll(torch.tensor([[1]]))
    assert nll.dtype == torch.float32
    assert nll.item() == 65.00390625


@pytest.mark.parametrize(
    ("dtype", "logit_map"), [(torch.float64, "identity"), (torch.float32, "sigsoftmax"), (torch.float64, "sigsoftmax")]
)
def test_what_fused_log_sums_are_not_made_for_is_left_to_torch(monkeypatch, dtype, logit_map):
    monkeypatch.setattr(devices, "log_sum_exp_kernel", lambda device: lambda *_, **__: pytest.fail("fused"))
    facets, weight = torch.ones(1, 1, 1, 2, dtype=dtype), torch.zeros(4, 2, dtype=dtype)
    nll = Mixture(facets, None, weight, logit_map=LOGIT_MAPS[logit_map]).nll(torch.tensor([[1]]))
    assert nll.item() == pytest.approx(math.log(4), abs=1e-6)
