"""Dropout: its masks against a loop over the generator's draws, their statistics, and its gradient."""

import math

import pytest
import torch

from harness.dropout import Dropout, LockedDropout, dropout

RATES = [0.1, 0.2, 0.5, 0.75]
N = 4_000_000


def dropped_of_ones(p, num_elements=N, seed=0):
    """(num_elements,) bool: which of so many ones are dropped."""
    torch.manual_seed(seed)
    return dropout(torch.ones(num_elements), p, training=True) == 0


@pytest.mark.parametrize("shape", [(3, 5, 7), (8,), (1,), (0, 4), ()])
@pytest.mark.parametrize("p", [0.1, 0.3])
def test_an_element_is_dropped_by_sixteen_bits_of_a_draw(shape, p):
    x = torch.randn(shape, dtype=torch.float64)
    torch.manual_seed(5)
    found = dropout(x, p, training=True)
    torch.manual_seed(5)
    least = math.floor(p * 65536 + torch.rand((), dtype=torch.float64).item())
    draws = torch.empty(math.ceil(x.numel() / 4), dtype=torch.int64).random_(-(2**63), None).tolist()
    expected = []
    for index, value in enumerate(x.flatten().tolist()):
        bits = (draws[index // 4] % 2**64) >> 16 * (index % 4) & 0xFFFF
        level = bits + 32768 if bits < 32768 else bits - 32768  # of a signed integer, from the lowest
        expected.append(0.0 if level < least else value / (1 - p))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64).view(shape), rtol=1e-12, atol=0)


@pytest.mark.parametrize("p", RATES)
def test_the_share_of_dropped_elements_is_the_rate(p):
    five_deviations = 5 * math.sqrt(p * (1 - p) / N)
    assert dropped_of_ones(p).double().mean().item() == pytest.approx(p, abs=five_deviations)


@pytest.mark.parametrize(("p", "least", "most"), [(1.25 / 65536, 1, 2), (0.1, 6553, 6554)])
def test_a_rate_between_two_multiples_is_met_on_average(p, least, most, monkeypatch):
    # the 16 bits of element i are those of i - 32768, so the number of dropped elements is the bound
    integers = torch.arange(-32768, 32768, dtype=torch.int16).view(torch.int64)
    monkeypatch.setattr(torch.Tensor, "random_", lambda draws, *bounds: draws.copy_(integers))
    torch.manual_seed(0)
    found = [(dropout(torch.ones(65536), p, training=True) == 0).sum().item() for _ in range(2000)]
    assert set(found) == {least, most}
    assert sum(found) / 2000 == pytest.approx(65536 * p, abs=5 * 0.5 / math.sqrt(2000))


@pytest.mark.parametrize("p", RATES)
def test_the_mean_is_kept(p):
    torch.manual_seed(1)
    kept = dropout(torch.ones(N, dtype=torch.float64), p, training=True)
    assert kept.mean().item() == pytest.approx(1, abs=5 * math.sqrt(p / (1 - p) / N))
    assert kept.var().item() == pytest.approx(p / (1 - p), rel=0.01)  # of 1 / (1 - p) with the probability 1 - p


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 5, 7, 200, 700])
def test_elements_are_dropped_independently(distance):
    p = 0.2
    centred = dropped_of_ones(p).double() - p
    correlation = (centred[distance:] * centred[:-distance]).mean().item() / (p * (1 - p))
    assert correlation == pytest.approx(0, abs=5 / math.sqrt(N))


def test_each_call_draws_another_mask_and_a_seed_repeats_them():
    x = torch.ones(50, 40)
    torch.manual_seed(3)
    first, second = dropout(x, 0.5, training=True), dropout(x, 0.5, training=True)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.5, training=True), first)
    agreeing = (first == second).double().mean().item()
    assert agreeing == pytest.approx(0.5, abs=5 * math.sqrt(0.25 / x.numel()))


def test_the_number_of_threads_changes_nothing():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = dropped_of_ones(0.3)
        torch.set_num_threads(4)
        assert torch.equal(dropped_of_ones(0.3), one)
    finally:
        torch.set_num_threads(before)


def test_the_gradient_has_the_mask_and_the_factor_of_the_output():
    x = torch.randn(30, 20, dtype=torch.float64, requires_grad=True)
    y, upstream = dropout(x, 0.25, training=True), torch.randn(30, 20, dtype=torch.float64)
    y.backward(upstream)
    torch.testing.assert_close(x.grad, upstream * (y != 0) / 0.75, rtol=1e-12, atol=0)


def test_a_strided_input_gets_one_decision_for_each_element():
    x = torch.randn(6, 8).t()
    torch.manual_seed(2)
    strided = dropout(x, 0.5, training=True)
    torch.manual_seed(2)
    assert torch.equal(strided, dropout(x.contiguous(), 0.5, training=True))
    expanded = dropout(torch.ones(1, 1).expand(100, 100), 0.5, training=True)
    assert (expanded == 0).double().mean().item() == pytest.approx(0.5, abs=5 * math.sqrt(0.25 / 10_000))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_type_is_kept_and_the_mask_does_not_depend_on_it(dtype):
    x = torch.ones(1000, dtype=dtype)
    torch.manual_seed(4)
    found = dropout(x, 0.5, training=True)
    assert found.dtype == dtype
    assert torch.equal(found == 0, dropped_of_ones(0.5, 1000, seed=4))
    assert set(found.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize(("module", "training"), [(Dropout(0.5), False), (Dropout(0.0), True)])
def test_without_training_or_rate_the_input_is_returned_and_nothing_is_drawn(module, training):
    x = torch.randn(5)
    before = torch.get_rng_state()
    assert module.train(training)(x) is x
    assert torch.equal(torch.get_rng_state(), before)


def test_a_rate_near_one_keeps_finite_numbers():
    kept = Dropout(0.9999999)(torch.ones(1_000_000))  # some 15 are kept
    assert set(kept.unique().tolist()) == {0.0, 65536.0}


@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan])
def test_a_wrong_rate_is_refused(p):
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\)"):
        Dropout(p)


def test_a_locked_mask_is_the_same_at_every_position_and_other_in_every_row_and_call():
    locked, x = LockedDropout(0.5), torch.ones(3, 7, 400, dtype=torch.float64)
    torch.manual_seed(0)
    first, second = locked(x), locked(x)
    assert torch.equal(first, first[:, :1].expand_as(first))
    assert set(first.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, second)
    assert locked.eval()(x) is x


def test_on_another_device_it_is_torchs_with_the_same_rate(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, p: asked.append((x.device.type, p)) or x)
    dropout(torch.ones(3, device="meta"), 0.3, training=True)
    assert asked == [("meta", 0.3)]
