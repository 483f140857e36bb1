"""The products of a step that are computed alone: all of them, in their layouts, and nothing else."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from harness.benchmarks.settings import SETTINGS
from harness.benchmarks.step_products import recorded
from harness.benchmarks.workloads import SEQ_LEN, Step

CPU = torch.device("cpu")
TINY = SETTINGS["tiny"]


def added_in_place(out, a, b, **_) -> int:
    return 2 * a[0] * a[1] * b[1]


def operations(call) -> int:
    """Two for each multiplication of a product, as torch counts them; it does not know addmm_."""
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: added_in_place}) as counter:
        call()
    return counter.get_total_flops()


def test_a_linear_layer_has_three_products():
    layer, x = nn.Linear(5, 7), torch.randn(3, 5, requires_grad=True)
    multiply = recorded(lambda: layer(x).sum().backward())
    assert operations(multiply) == 3 * 2 * 3 * 5 * 7  # the output, and the gradients of input and weight


def test_attention_s_batched_products_and_sums_of_products_are_computed_too():
    a, b, out = torch.randn(4, 2, 3), torch.randn(4, 3, 5), torch.randn(2, 5)

    def step():
        out.addmm_(a[0], b[0])
        return a.bmm(b)

    assert operations(recorded(step)) == 2 * 2 * 3 * 5 + 4 * 2 * 2 * 3 * 5


def test_what_is_no_product_is_left_out_and_the_step_s_tensors_are_not_written():
    x, out = torch.randn(6, 6), torch.zeros(6, 6)

    def step():
        torch.mm(x.exp().t(), x, out=out)

    multiply = recorded(step)
    before = x.clone(), out.clone()
    multiply()
    assert operations(multiply) == 2 * 6**3
    assert torch.equal(x, before[0])
    assert torch.equal(out, before[1])


def test_an_input_that_repeats_one_number_keeps_its_layout():
    x = torch.ones(1, 1).expand(4, 3)
    assert operations(recorded(lambda: x.mm(torch.ones(3, 2)))) == 2 * 4 * 3 * 2


@pytest.mark.parametrize("head", ["softmax", "mos2"])
def test_products_of_a_whole_step_with_the_transformer(head):
    step = Step(TINY, head, CPU)
    found = operations(recorded(lambda: step.run(None)))
    N, d, V, L, F, K = TINY.tokens, TINY.width, TINY.vocab, 4, 200, 2
    layer = 4 * d * d + 2 * d * F + 2 * SEQ_LEN * d  # query, key, value, output; feed-forward; attention's two products
    outputs = V * d if head == "softmax" else K * V * d + K * d * d + K * d  # the mixture's latent map and prior
    columns_of_ones = 8 * (1 if head == "softmax" else K)  # in the product for dW: they make the gradient of the bias
    assert found == 3 * 2 * N * (L * layer + outputs) + 2 * N * V * columns_of_ones


def test_products_of_a_whole_step_with_the_lstm():
    step = Step(replace(TINY, backbone="lstm"), "softmax", CPU)
    found = operations(recorded(lambda: step.run(None)))
    N, d, V, L = TINY.tokens, TINY.width, TINY.vocab, 2
    # without oneDNN, torch leaves out the gradient of the first state, which is constant
    left_out = 0 if torch.backends.mkldnn.enabled else 2 * L * (N // SEQ_LEN) * 4 * d * d
    # four gates, each of the input and of the state; dW has 8 columns more, for the bias
    assert found == 3 * 2 * N * (L * 8 * d * d + V * d) + 2 * N * V * 8 - left_out
