"""The cases of test_triton.py, which starts them where TRITON_INTERPRET=1 was set before any import."""

import math
from dataclasses import replace

import pytest
import torch
import triton

from harness.distributions import LOGIT_MAPS, Mixture, log_prior
from harness.gpu import triton_evaluation, triton_rows
from harness.kernels import choice, planted, reference_only, rows
from harness.kernels.agreement import fault_of
from harness.kernels.choice import FormChoice
from harness.kernels.forms import LEAN, LOG_SUMS, ROWS

FLOAT32 = 2.0**-24  # the relative error of one rounding
LOG_2 = math.log(2)
LAYOUTS = {  # (F_s, V_s) of each block, the facets in it, the component of each facet
    "softmax": ([(1, 37)], [[0]], [0]),
    "one word": ([(1, 1)], [[0]], [0]),
    "whole steps only": ([(1, 8192)], [[0]], [0]),
    "whole steps and a rest": ([(1, 8197)], [[0]], [0]),
    "mos": ([(5, 41)], [range(5)], [0, 1, 2, 3, 4]),
    "mfs 4, 1, 1": ([(1, 14), (1, 13), (1, 13), (1, 13), (2, 53)], [[0], [1], [2], [3], [4, 5]], [0, 0, 0, 0, 1, 2]),
    "mfs 1, 3": ([(1, 50), (1, 17), (1, 17), (1, 16)], [[0], [1], [2], [3]], [0, 1, 1, 1]),
    "blocks in another order": ([(1, 19), (3, 40), (1, 21)], [[4], range(3), [3]], [0, 1, 2, 3, 3]),
}


@pytest.fixture(autouse=True)
def _uninitialized_memory_is_nan():
    torch.use_deterministic_algorithms(True)  # fills what torch.empty returns
    yield
    torch.use_deterministic_algorithms(False)


def buffer(num_tokens, num_facets, length, multiple, dtype):
    """A block of logits within a NaN that reaches to the next multiple, and the whole."""
    whole = torch.full((num_tokens, num_facets, (length // multiple + 1) * multiple), math.nan, dtype=dtype)
    return whole[..., :length], whole


def filled(layout, num_tokens, multiple, dtype, spread=3.0, offset=0.0):
    """Blocks of normal logits, the memory around them, and targets, which are words of each component."""
    generator = torch.Generator().manual_seed(1)
    blocks, wholes = zip(*(buffer(num_tokens, *spec, multiple, dtype) for spec in LAYOUTS[layout][0]), strict=True)
    for block in blocks:
        block.copy_(spread * torch.randn(block.shape, generator=generator) + offset)
    num_components = LAYOUTS[layout][2][-1] + 1
    target_nK = LOG_2 * (spread * torch.randn(num_tokens, num_components, generator=generator) + offset) - 1
    return list(blocks), wholes, target_nK


def prior_of(target_nK):
    """(n, K) log weights that differ."""
    return torch.linspace(0, 1, target_nK.numel()).view_as(target_nK).log_softmax(-1)


def check(layout, dtype, num_tokens=3, multiple=8, log_epsilon=None, rounding=30 * FLOAT32, **spread):
    """Against torch's operations in float64, which test_lean_property.py compares with loops. `rounding` is the
    absolute error of a log-probability, so the relative one of a probability.
    """
    blocks, wholes, target_nK = filled(layout, num_tokens, multiple, dtype, **spread)
    _, facets, component = LAYOUTS[layout]
    exact, prior_nK = [block.double() for block in blocks], prior_of(target_nK)
    members = [list(each) for each in facets]
    expected = rows.combine_rows_(exact, members, component, target_nK.double(), prior_nK.double(), log_epsilon)
    result = triton_rows.combine_rows_(blocks, facets, component, target_nK, prior_nK, log_epsilon)
    for name, rtol, atol in (
        *(("nll", 0, rounding), ("normaliser", 0, rounding)),
        *(("share", rounding, 1e-30), ("rest", 2 * rounding, 1e-30)),
    ):
        torch.testing.assert_close(getattr(result, name).double(), getattr(expected, name), rtol=rtol, atol=atol)
    # The interpreter cuts off what does not fit into bfloat16; the GPU rounds.
    stored = (2.0**-7 if dtype == torch.bfloat16 else 0.0) + 30 * FLOAT32
    for block, wide, of in zip(blocks, exact, members, strict=True):
        torch.testing.assert_close(block.double(), wide, rtol=stored, atol=1e-37)
        for ours, theirs in ((result.scale, expected.scale), (result.unit, expected.unit)):
            found, right = block.double() * ours[:, of, None].double(), wide * theirs[:, of, None]
            torch.testing.assert_close(found, right, rtol=stored + rounding, atol=1e-30)
    for block, whole in zip(blocks, wholes, strict=True):
        assert whole[..., block.shape[-1] :].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_equations(layout, dtype):
    check(layout, dtype)


@pytest.mark.parametrize("log_epsilon", [1e-8, 0.5])
def test_an_epsilon_joins_the_probability(log_epsilon):
    check("mfs 4, 1, 1", torch.float32, log_epsilon=log_epsilon)


@pytest.mark.parametrize("layout", ["mos", "mfs 1, 3", "whole steps and a rest"])
def test_rows_of_odd_strides(layout):
    check(layout, torch.bfloat16, multiple=3)


@pytest.mark.parametrize("offset", [1e4, -1e4])
@pytest.mark.parametrize("layout", ["softmax", "mos", "mfs 4, 1, 1"])
def test_logits_far_from_zero(layout, offset):
    # log-probabilities are differences of numbers of 1e4: their roundings to float32 remain, a handful of them
    check(layout, torch.float32, offset=offset, rounding=4 * 1e4 * FLOAT32)


def test_logits_far_from_one_another():
    # 2^-20000 is 0 in either type, and nll is some 1e4 nats
    blocks = [torch.tensor([[[0.0, -2e4, 1e4, -1e4], [-1e4, 1e4, 9999.0, 0.0]]])]
    result = triton_rows.combine_rows_(blocks, [[0, 1]], [0, 1], torch.zeros(1, 2), None, None)
    # A = 1e4 ln 2 and 1e4 ln 2 + ln(3/2): the second has 2/3 of the first's likelihood
    torch.testing.assert_close(blocks[0], torch.tensor([[[0.0, 0, 1, 0], [0, 1, 0.5, 0]]]), rtol=1e-6, atol=0)
    torch.testing.assert_close(result.nll, torch.tensor([1e4 * LOG_2 - math.log(5 / 3)]), rtol=4 * FLOAT32, atol=0)
    torch.testing.assert_close(result.share, torch.tensor([[3 / 5, 2 / 5]]), rtol=4e4 * FLOAT32, atol=0)


@pytest.mark.filterwarnings("ignore:All-NaN slice encountered")  # NumPy in the interpreter
def test_nan_logits_end_in_a_nan_nll_with_an_epsilon_too():
    for log_epsilon in (None, 1e-3):
        block = torch.zeros(2, 1, 7)
        block[1, 0, 3] = math.nan
        nll = triton_rows.combine_rows_([block], [[0]], [0], torch.zeros(2, 1), None, log_epsilon).nll
        assert nll.isnan().tolist() == [False, True]


@pytest.mark.filterwarnings("ignore:divide by zero encountered in log2")  # NumPy in the interpreter: log 0 is -inf
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_without_another_word_leaves_the_target_certain(dtype):
    blocks = [torch.full((2, 1, length), -math.inf, dtype=dtype) for length in (1, 3)]
    target_nK = torch.tensor([[-7.0], [9.0]])
    found = triton_rows.combine_rows_(blocks, [[0], [1]], [0, 0], target_nK, None, None)
    assert (found.nll.tolist(), found.share.tolist()) == ([0.0, 0.0], [[1.0], [1.0]])
    assert (found.rest.tolist(), found.scale.tolist()) == ([[0.0], [0.0]], [[0.0, 0.0]] * 2)
    assert all(torch.equal(block, torch.zeros_like(block)) for block in blocks)


def test_float64_is_left_to_torch():
    (blocks, _, target_nK), facets = filled("mos", 3, 8, torch.float64), [range(5)]
    exact = [block.clone() for block in blocks]
    given = facets, list(range(5)), target_nK.double(), prior_of(target_nK).double(), None
    found, expected = triton_rows.combine_rows_(blocks, *given), rows.combine_rows_(exact, *given)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def matrix(num_rows, width, dtype, generator, columns_around=0):
    """Normal numbers, between columns of NaN."""
    whole = torch.full((num_rows, width + 2 * columns_around), math.nan)
    view = whole.to(dtype)[:, columns_around : columns_around + width]
    return view.copy_(torch.randn(num_rows, width, generator=generator))


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("R", "E", "V", "columns_around"),
    [(1, 1, 1, 0), (70, 33, 401, 3), (130, 64, 129, 8), (129, 200, 300, 0), (3, 8, 128, 3)],
)
def test_log_sum_exp_of_a_product(R, E, V, columns_around, dtype, precision):
    generator = torch.Generator().manual_seed(R)
    h, W = (matrix(n, E, dtype, generator, columns_around) for n in (R, V))
    b = torch.randn(V, generator=generator)
    exact = [x.bfloat16().double() if precision == "bf16" else x.double() for x in (h, W)]
    expected = (exact[0] @ exact[1].T + b.double()).logsumexp(1)
    result = triton_evaluation.fused_log_sum_exp(h, W, b, precision=precision)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), expected, rtol=0, atol=8 * FLOAT32 * 64)  # logits reach 64


@pytest.mark.parametrize("programs", [1, 2, 3, 1000])
def test_shares_of_any_number_of_tiles_add_up(programs, monkeypatch):
    monkeypatch.setattr(triton_evaluation, "PROGRAMS", programs)
    generator = torch.Generator().manual_seed(0)
    h, W = matrix(5, 8, torch.float32, generator), matrix(64 * 7 + 1, 8, torch.float32, generator)
    W[-1] *= 20  # the last word, alone in its tile, matters
    ours = triton_evaluation.fused_log_sum_exp(h, W)
    torch.testing.assert_close(ours.double(), (h.double() @ W.double().T).logsumexp(1), rtol=8 * FLOAT32, atol=1e-6)


def test_log_sum_exp_far_from_zero():
    h, W = torch.ones(2, 1), torch.tensor([[1e4], [1e4], [-1e4]])
    h[1] = -1
    ours = triton_evaluation.fused_log_sum_exp(h, W)
    torch.testing.assert_close(ours, torch.tensor([1e4 + LOG_2, 1e4]), rtol=4 * FLOAT32, atol=0)


def here():
    """The forms with Triton's kernels, on the CPU."""
    sums = replace(
        LOG_SUMS, fits=lambda mixture, gradients: not gradients and mixture.logit_map is LOGIT_MAPS["identity"]
    )
    return [sums, replace(ROWS, fits=LEAN.fits)]


CASES = {case.name: case for case in planted.CASES}


@pytest.mark.parametrize(
    "name", ["one component", "partitions 1, 3 with an epsilon", "a bend, partitions, bias", "the soft cap of Gemma 2"]
)
def test_the_kernels_agree_with_the_equations(name):
    mixture, targets_N = planted.batch(CASES[name], torch.device("cpu"))
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            for form in here():
                if form.fits(mixture, gradients):
                    assert fault_of(form, mixture, targets_N) == ""


def test_a_kernel_with_a_planted_fault_is_refused(monkeypatch):
    """ln 2 with four digits, where the kernel goes from powers of 2 to nats."""
    monkeypatch.setattr(triton_rows, "LOG_2", triton.language.constexpr(0.6931))
    assert "is wrong" in fault_of(here()[1], *planted.batch(CASES["one component"], torch.device("cpu")))


@pytest.mark.parametrize("partitions", [(1,), (1, 1, 1), (4, 1, 1)])
def test_a_whole_mixture_by_the_kernels_equals_the_reference(partitions):
    generator = torch.Generator().manual_seed(3)
    shapes = [(2, 20, sum(partitions), 5), (2, 20, len(partitions)), (43, 5), (43,)]
    given = [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]
    targets = torch.randint(43, (2, 20), generator=generator)

    def evaluated(facets, scores, weight, bias):
        inputs = (facets, scores, weight, bias)
        made = Mixture(facets, log_prior(scores), weight, bias, partitions=partitions)
        loss = made.mean_nll(targets)
        grads = torch.autograd.grad(loss, inputs, allow_unused=True)
        with torch.no_grad():
            return [loss, made.nll(targets), *(grad for grad in grads if grad is not None)]

    with reference_only():
        expected = evaluated(*(tensor.detach().double().requires_grad_() for tensor in given))
    with choice.using(FormChoice(forms=here())):
        outcome = evaluated(*given)
    for found, exact in zip(outcome, expected, strict=True):
        if exact.norm() > 1e-12:  # one component's prior has no gradient
            assert (found.double() - exact).norm() / exact.norm() < 3e-6
