"""Matrix products by precision and route: right in each, and torch's switches as they were."""

import pytest
import torch
from handmade import SaysCuda
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from harness.kernels import products
from harness.kernels.products import Products, current, linear, using

CPU = torch.device("cpu")


def switch():
    return torch.backends.mkldnn.matmul.fp32_precision


def gpu_switches():
    cuda = torch.backends.cuda.matmul
    return cuda.fp32_precision, torch.backends.cudnn.rnn.fp32_precision, cuda.allow_bf16_reduced_precision_reduction


class Noted(TorchDispatchMode):
    """(operation, rows of the result, the switch) of every matrix product."""

    def __init__(self):
        super().__init__()
        self.products = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        if "mm" in name:
            self.products.append((name, len(result), switch()))
        return result


def pair(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(*shape, generator=generator).to(dtype) for shape in ((40, 300), (300, 700)))


def error(found, a, b):
    exact = a.double() @ b.double()
    return ((found.double() - exact).norm() / exact.norm()).item()


def test_products_of_float32_are_float32_on_every_exact_route(exact_route):
    a, b = pair()
    chosen = Products(route=exact_route)
    assert error(chosen.mm(a, b), a, b) < 1e-6
    assert error(chosen.mm_(torch.empty(40, 700), a, b), a, b) < 1e-6
    out = torch.ones(40, 700)
    chosen.addmm_(out, a, b)
    assert error(out - 1, a, b) < 2e-6


def test_every_product_finds_the_switch_on_and_it_is_put_back_after_an_error_too():
    before, chosen, (a, b) = switch(), Products(route="onednn"), pair()
    with Noted() as noted:
        chosen.mm(a, b)
        chosen.mm_(torch.empty(40, 700), a, b)
        chosen.addmm_(torch.zeros(40, 700), a, b)
        assert switch() == before
        with chosen.switched(CPU):
            chosen.mm(a, b)
            assert switch() == "bf16"  # a product within leaves it on
    assert noted.products == [(name, 40, "bf16") for name in ("mm", "mm", "addmm_", "mm")]
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        chosen.mm(torch.ones(2, 3), torch.ones(2, 3))
    assert switch() == before


@pytest.mark.parametrize(
    ("chosen", "device", "expected"),
    [
        (Products(), "cuda", "ieee"),
        (Products(precision="bf16"), "cuda", "ieee"),
        (Products(precision="tf32"), "cuda", "tf32"),
        (Products(precision="tf32", route="onednn"), "cuda", "tf32"),  # a route of the CPU
        (Products(precision="tf32", route="onednn"), "meta", None),
    ],
)
def test_a_gpu_multiplies_in_the_precision_that_is_said_and_other_devices_have_no_switch(chosen, device, expected):
    before, cpu = gpu_switches(), switch()
    with chosen.switched(torch.device(device)):
        assert gpu_switches() == ((expected, expected, False) if expected else before)
        assert switch() == cpu
    assert gpu_switches() == before


@pytest.mark.parametrize("chosen", [Products(precision="tf32"), Products(precision="bf16")])
def test_the_default_route_is_float32_whatever_torch_was_allowed(chosen):
    torchs, before = switch(), gpu_switches()
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        with chosen.switched(CPU):
            assert switch() == "ieee"
            assert gpu_switches() == before
        assert switch() == "bf16"
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = torchs


def test_which_types_enter_products():
    single, double, half = (torch.empty(0, dtype=dtype) for dtype in (torch.float32, torch.float64, torch.bfloat16))
    for precision, of_single in (("bf16", half.dtype), ("tf32", single.dtype)):
        chosen = Products(precision=precision)
        assert [chosen.dtype(x) for x in (single, double, half)] == [of_single, double.dtype, half.dtype]


def test_bfloat16_products_add_up_in_float32(monkeypatch):
    monkeypatch.setattr(products, "CACHED", 5 * 700)  # five rows a piece: eight pieces
    a, b = pair(torch.bfloat16)
    out = torch.full((40, 700), 1000.0)
    for _ in range(100):
        Products(precision="bf16").addmm_(out, a, b)
    exact = 1000 + 100 * (a.double() @ b.double())
    assert ((out - exact).norm() / exact.norm()).item() < 3e-3  # each product rounded once, 2^-9 at most
    held = (out - exact).mean().abs() / (a.double() @ b.double()).std()
    assert held < 0.5  # 100 products of which none is lost beside 1000: in bfloat16, a quarter of each would be


def test_products_are_chosen_within_a_context():
    assert current() == Products()
    with using(Products(precision="bf16")):
        with using(Products(route="onednn")):
            assert current() == Products(route="onednn")
        assert current().precision == "bf16"
    assert current() == Products()


@pytest.mark.parametrize(
    ("dtype", "place"), [(torch.float32, torch.Tensor), (torch.bfloat16, torch.Tensor), (torch.bfloat16, SaysCuda)]
)
def test_with_beta_0_it_does_not_matter_what_was_there(dtype, place):
    a, b = (torch.eye(3)[:2].to(dtype).as_subclass(place), torch.arange(12.0).view(3, 4).to(dtype).as_subclass(place))
    out = torch.full((2, 4), torch.nan).as_subclass(place)
    Products().addmm_(out, a, b, beta=0)
    assert out.tolist() == [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]
    Products().addmm_(out, a, b, beta=1)
    assert out.tolist() == [[0.0, 2.0, 4.0, 6.0], [8.0, 10.0, 12.0, 14.0]]


def layer(dtype=torch.float32, leaves=3):
    """x (2, 3, 5), weight (7, 5) and bias (7,), or the first two, that ask for gradients, and an upstream gradient."""
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 3, 5), (7, 5), (7,), (2, 3, 7)
    *made, upstream = (torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes)
    return [leaf.requires_grad_() for leaf in made[:leaves]], upstream


with_bias_or_without = pytest.mark.parametrize("leaves", [2, 3], ids=["no bias", "bias"])


@with_bias_or_without
@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.float64), ("bf16", torch.bfloat16)]
)
def test_a_linear_map_that_is_not_rounded_is_torchs(precision, dtype, leaves):
    given, upstream = layer(dtype, leaves)
    with using(Products(precision=precision)):
        found = linear(*given)
        gradients = torch.autograd.grad(found, given, upstream)
    expected = functional.linear(*given)
    theirs = torch.autograd.grad(expected, given, upstream)
    assert all(torch.equal(a, b) for a, b in zip((found, *gradients), (expected, *theirs), strict=True))


@with_bias_or_without
@pytest.mark.parametrize(("precision", "entered"), [("bf16", torch.bfloat16), ("tf32", torch.float32)])
def test_a_linear_map_is_multiplied_in_the_precision_of_the_moment(precision, entered, leaves):
    given, upstream = layer(leaves=leaves)
    with using(Products(precision=precision)):
        found = linear(*given)
    x, weight, above = (t.detach().to(entered) for t in (given[0].flatten(0, 1), given[1], upstream.flatten(0, 1)))
    product = (x @ weight.t()).float().view(2, 3, 7)
    assert found.dtype == torch.float32
    assert torch.equal(found, product + given[2] if leaves == 3 else product)
    gradients = torch.autograd.grad(found, given, upstream)  # as the forward pass did
    expected = [(above @ weight).float().view(2, 3, 5), (above.t() @ x).float(), upstream.sum((0, 1))]
    for a, b in zip(gradients, expected[:leaves], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_linear_map_of_no_rows_has_no_rows(precision):
    # as a cluster of an adaptive softmax without a target in the batch
    x, weight = torch.zeros(0, 3, requires_grad=True), torch.ones(5, 3, requires_grad=True)
    with using(Products(precision)):
        product = linear(x, weight)
    assert product.shape == (0, 5)
    product.sum().backward()
    assert torch.equal(weight.grad, torch.zeros(5, 3))


def test_a_linear_map_takes_the_route_of_the_moment_there_and_back():
    (x, weight), upstream = layer(leaves=2)
    with Noted() as noted:
        with using(Products(precision="tf32", route="onednn")):
            found = linear(x, weight)
        torch.autograd.grad(found, (x, weight), upstream)
    assert noted.products == [("mm", 6, "bf16"), ("mm", 6, "bf16"), ("mm", 7, "bf16")]


@pytest.mark.parametrize(
    ("device", "route", "length", "is_whole"),
    [
        ("cpu", "onednn", 255, True),
        ("cpu", "onednn", 256, False),
        ("cpu", "onednn", 257, False),
        ("cpu", "default", 255, False),
        ("cuda", "onednn", 255, False),
    ],
)
def test_short_segments_are_attended_to_by_whole_products_where_onednn_computes_them(device, route, length, is_whole):
    with Products(route=route).attention(torch.device(device), length):
        assert torch.backends.cuda.flash_sdp_enabled() != is_whole
        assert torch.backends.cuda.math_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()
