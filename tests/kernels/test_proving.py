"""The proof of kernels: right ones pass in every precision, and a fault of any kind and size that matters is found."""

import pytest
import torch

from harness.distributions import Mixture
from harness.kernels import devices, proving, rows
from harness.kernels.devices import Kernels
from harness.kernels.products import Products

CPU = torch.device("cpu")


def log_sum_exp(rows_RE, weight_VE, bias_V, *, precision):
    """What harness.kernels.triton_evaluation says it computes."""
    if precision == "bf16":
        rows_RE, weight_VE = rows_RE.bfloat16(), weight_VE.bfloat16()
    logits_RV = rows_RE.double() @ weight_VE.double().t()
    return (logits_RV if bias_V is None else logits_RV + bias_V.double()).logsumexp(-1).float()


def planted(before=lambda blocks: None, after=lambda result, blocks: result):
    """torch's own form with a fault before or after it."""

    def combine_rows_(blocks, *rest):
        before(blocks)
        return after(rows.combine_rows_(blocks, *rest), blocks)

    return Kernels(combine_rows_)


def forget_the_last_odd_column(blocks):
    for block in blocks:
        if block.shape[-1] % 2:
            block[..., -1] = -torch.inf


def forget_what_follows_whole_steps(blocks):
    for block in blocks:
        if block.shape[-1] > 2048:
            block[..., block.shape[-1] // 2048 * 2048 :] = -torch.inf


def leave_the_last_column(result, blocks):
    blocks[0][..., -1] = 1.0
    return result


def scaled(field, factor, when=lambda blocks: True):
    """A field of the result times a factor, where the blocks are such."""

    def after(result, blocks):
        return result._replace(**{field: factor * getattr(result, field)}) if when(blocks) else result

    return after


def raising(result, blocks):
    raise RuntimeError("an illegal memory access was encountered")


FAULTS = {
    "the nll by a factor": (planted(after=scaled("nll", 1.0001)), "the loss is wrong"),
    "a nll that is no number": (planted(after=scaled("nll", torch.nan)), "the loss is wrong by nan"),
    "the last odd column": (planted(before=forget_the_last_odd_column), "the loss is wrong"),
    "the rest after whole steps": (planted(before=forget_what_follows_whole_steps), "many words"),
    "the last column is not written": (planted(after=leave_the_last_column), "the gradient of"),
    "a gradient only": (planted(after=scaled("scale", 1.01)), "the gradient of"),
    "the target's gradient only": (planted(after=scaled("rest", 1.01)), "the gradient of"),
    "the prior's gradient only": (planted(after=scaled("share", 1.0001)), "the gradient of the prior"),
    "bfloat16 only": (planted(after=scaled("scale", 1.01, lambda blocks: blocks[0].dtype == torch.bfloat16)), "(bf16"),
    "partitions only": (planted(after=scaled("nll", 1.0001, lambda blocks: len(blocks) > 1)), "(fp32, partitions"),
}


def test_torchs_own_operations_are_right():
    assert proving.fault_of_training(CPU, Kernels()) == ""


def test_a_kernel_that_computes_what_it_says_is_right():
    assert proving.fault_of_evaluation(CPU, Kernels(log_sum_exp=log_sum_exp)) == ""


def test_a_log_normaliser_below_the_targets_logit_is_rounding():
    # one word has all the probability, and its logit is 96: a float32 near 96 has steps of 7.6e-6
    facets, weight = torch.tensor([[[[96.0, 0.0]]]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    mixture, targets = Mixture(facets, None, weight, None), torch.tensor([[0]])

    def too_low(rows_RE, weight_VE, bias_V, *, precision):
        return log_sum_exp(rows_RE, weight_VE, bias_V, precision=precision) - 1.9e-5

    with torch.no_grad(), devices.use_kernels(Kernels(log_sum_exp=too_low)):
        assert mixture.nll(targets).item() == 0
        assert mixture.nll(torch.tensor([[1]])).item() == pytest.approx(96, abs=1e-4)


def tf32(x: torch.Tensor, *, nearest: bool) -> torch.Tensor:
    """x with the 10 bits of tf32's fraction: the 13 others are cut off, or x is rounded to nearest."""
    bits = x.contiguous().view(torch.int32) + (2**12 if nearest else 0)
    return (bits & -(2**13)).view(torch.float32)


@pytest.mark.parametrize("nearest", [True, False], ids=["rounded", "cut off"])
def test_products_in_tf32_are_right(nearest, monkeypatch):
    # On the CPU tf32 is float32. Here it is what a matrix unit makes of it. An H100 rounds.
    rounded = 0

    def in_tf32(multiply, operands):
        def multiplied(self, *tensors, **options):
            nonlocal rounded
            given = list(tensors)
            if self.precision == "tf32" and given[-1].dtype == torch.float32:
                given[operands] = [tf32(x, nearest=nearest) for x in given[operands]]
                rounded += 1
            return multiply(self, *given, **options)

        return multiplied

    for name, operands in (("mm", slice(0, 2)), ("mm_", slice(1, 3)), ("addmm_", slice(1, 3))):
        monkeypatch.setattr(Products, name, in_tf32(getattr(Products, name), operands))
    assert proving.fault_of_training(CPU, Kernels()) == ""
    assert rounded > 0


@pytest.mark.parametrize(("kernels", "told"), FAULTS.values(), ids=FAULTS)
def test_a_wrong_kernel_for_training_is_found(kernels, told):
    assert told in proving.fault_of_training(CPU, kernels)


def test_a_kernel_that_raises_raises():
    with pytest.raises(RuntimeError, match="illegal memory access"):
        proving.fault_of_training(CPU, planted(after=raising))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda h, W, b, precision: log_sum_exp(h, W, b, precision=precision) * 1.0001, "(fp32, one component;"),
        (lambda h, W, b, precision: log_sum_exp(h, W[:8192], b, precision=precision), "(fp32, many words;"),
        (lambda h, W, b, precision: log_sum_exp(h, W[:-1] if len(W) == 401 else W, b, precision=precision), "three"),
        (lambda h, W, b, precision: log_sum_exp(h, W, None, precision=precision), "with bias"),
        (
            lambda h, W, b, precision: log_sum_exp(h, W, b, precision="fp32") * (1.0001 if precision == "tf32" else 1),
            "tf32",
        ),
        (
            lambda h, W, b, precision: log_sum_exp(h, W, b, precision="fp32") * (1.0001 if precision == "bf16" else 1),
            "bf16",
        ),
    ],
    ids=["factor", "last words", "last word", "bias", "tf32 only", "bf16 only"],
)
def test_a_wrong_kernel_for_evaluation_is_found(wrong, told):
    assert told in proving.fault_of_evaluation(CPU, Kernels(log_sum_exp=wrong))


def test_the_kernels_that_are_proved_are_the_ones_that_run(monkeypatch):
    # if the reference ran, or kernels other than those given, any fault would pass
    calls = []
    given = Kernels(lambda *args: calls.append("rows") or rows.combine_rows_(*args), lambda *a, **k: pytest.fail("ran"))
    assert proving.fault_of_training(CPU, given) == ""
    assert len(calls) >= 3 * len(proving.CASES) * 3  # precisions, cases; loss, nll and its gradient
    assert devices.row_kernel(CPU) is rows.combine_rows_  # afterwards


def test_logits_of_the_cases_are_held_by_bfloat16_exactly():
    for case in proving.CASES:
        facets, _, weight, _ = proving._tensors(case, CPU, torch.float64, unit=1.0)
        logits = facets @ weight.t()
        assert torch.equal(logits.bfloat16().double(), logits)
        assert logits.std() > 0.5
