"""The harmonic head: its start, and states at and far from the words."""

import oracles
import pytest
import torch
from small_heads import E, V, make, randomise, states

from harness.kernels import agreement, forms
from harness.kernels.products import Products, using
from harness.protocols import Hidden

FLOAT32, BFLOAT16 = 2**-21, 2**-8  # as in tests/heads/test_stability.py: 8 roundings of 2^-24, 2 of 2^-9


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, FLOAT32), (torch.bfloat16, BFLOAT16)])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_near_and_far_states_are_right_to_the_rounding_of_their_squares(scale, dtype, tolerance):
    head, hidden = randomise(make("harmonic"), 0.5).to(dtype), states(dtype=torch.float32)
    hidden = Hidden((scale * hidden.layers[-1].to(dtype),))
    logp = oracles.of_head("harmonic", head, hidden.layers)
    # an error e of a square is one of n e / 2 of its logarithm; in [2 f, 1] . [w, -w . w] terms cancel to d^2
    f, w = hidden.layers[0].double()[:, :, None], head.output.weight.double()
    cancelled = ((f.square().sum(-1) + w.square().sum(-1)) / (f - w).square().sum(-1)).max().item()
    bound = tolerance * max(1.0, logp.abs().max().item(), head.phi.n / 2 * cancelled)
    torch.testing.assert_close(head(hidden).log_probs().double(), logp, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_of_zeros_or_at_a_word_has_finite_probabilities_and_gradients(dtype):
    head = make("harmonic", exponent=28.0, dtype=dtype)
    for state in (torch.zeros(E), head.output.weight[3].detach()):
        hidden = state.to(dtype).expand(1, 2, E).clone().requires_grad_()
        distribution = head(Hidden((hidden,)))
        assert distribution.log_probs().exp().sum(-1).tolist()[0] == pytest.approx([1, 1], abs=1e-5)
        gradients = torch.autograd.grad(
            distribution.training_loss(torch.tensor([[3, V - 1]])), [hidden, head.output.weight]
        )
        assert all(gradient.isfinite().all() for gradient in gradients)
    assert distribution.log_probs()[0, 0, 3].item() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("exponent", [None, 28.0])
def test_the_lean_forms_agree_on_its_batches_as_a_gpu_checks_them(exponent, precision):
    head = make("harmonic", layer_dims=(24,), embedding=24, vocab_size=307, exponent=exponent, dtype=torch.float32)
    mixture, targets = head(states(4, 50, widths=(24,), dtype=torch.float32)), torch.arange(200)
    with using(Products(precision=precision)):
        assert forms.LEAN.fits(mixture, True)
        assert agreement.fault_of(forms.LEAN, mixture, targets) == ""
