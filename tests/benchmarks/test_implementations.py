"""Baselines compute what they are said to: the oracles' loops in float64, values and gradients; and what can be
compared: names, ways of multiplying, and what an implementation lacks.
"""

import math
from types import SimpleNamespace

import oracles
import pytest
import torch
from torch import Tensor

from harness.benchmarks import implementations
from harness.benchmarks.implementations import IMPLEMENTATIONS, arithmetic, checked_impls, checked_ways, lacks
from harness.benchmarks.record import Cell
from harness.benchmarks.settings import SETTINGS
from harness.distributions import LOGIT_MAPS, Mixture
from harness.kernels import products

N, E, V = 5, 4, 11
MIXTURES = {  # partitions, output bias, logit map
    "softmax": ((1,), True, "identity"),
    "mos": ((1, 1, 1), True, "identity"),
    "mfs": ((4, 1, 1), False, "identity"),
    "partitions with a bias": ((1, 3, 2), True, "identity"),
    "sigsoftmax": ((1,), True, "sigsoftmax"),
    "a mixture of sigsoftmaxes": ((1, 2), False, "sigsoftmax"),
}
EXACT = [implementations.log_space, implementations.target_only, implementations.published]


def leaves(partitions: tuple[int, ...], bias: bool) -> list[Tensor | None]:
    """Facets, scores of the prior, output matrix and bias, drawn from one seed."""
    draw = torch.Generator().manual_seed(len(partitions))
    shapes = [
        (N, sum(partitions), E),
        (N, len(partitions)) if len(partitions) > 1 else None,
        (V, E),
        (V,) if bias else None,
    ]
    return [s and torch.randn(s, generator=draw, dtype=torch.float64).mul(1.5).requires_grad_() for s in shapes]


def evaluated(evaluation, given: list[Tensor | None], partitions, logit_map: str, targets: Tensor) -> Tensor:
    facets, scores, weight, bias = given
    prior = None if scores is None else scores.log_softmax(-1)[None]
    phi = LOGIT_MAPS[logit_map]
    return evaluation(Mixture(facets[None], prior, weight, bias, partitions=partitions, logit_map=phi), targets)


def expected(given: list[Tensor | None], partitions, logit_map: str, targets: Tensor, compat=None) -> Tensor:
    facets, scores, weight, bias = given
    p = {"output.weight": weight} | ({} if bias is None else {"output.bias": bias})
    losses = []
    for n in range(N):
        owners = facets[n].split(list(partitions))
        prior = [torch.zeros(())] if scores is None else oracles.log_softmax(list(scores[n]))
        logp = oracles.mixture(p, owners, prior, oracles.LOGIT_MAPS[logit_map], compat)
        losses.append(-logp[targets[n]])
    return torch.stack(losses)


def gradients(losses: Tensor, given: list[Tensor | None]) -> list[Tensor]:
    upstream = torch.linspace(0.5, 2.0, N, dtype=torch.float64)
    return list(torch.autograd.grad(losses @ upstream, [leaf for leaf in given if leaf is not None]))


def compare(evaluation, case: str, compat=None) -> None:
    partitions, bias, logit_map = MIXTURES[case]
    given, targets = leaves(partitions, bias), torch.tensor([0, 10, 3, 3, 6])
    ours = evaluated(evaluation, given, partitions, logit_map, targets)
    theirs = expected(given, partitions, logit_map, targets, compat)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gradients(ours, given), gradients(theirs, given), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("case", MIXTURES)
@pytest.mark.parametrize("evaluation", EXACT, ids=lambda each: each.__name__)
def test_a_baseline_equals_the_loops(evaluation, case):
    compare(evaluation, case, {"log_epsilon": 1e-8} if evaluation is implementations.published else None)


@pytest.mark.skipif(not hasattr(torch.nn.functional, "linear_cross_entropy"), reason="not in this torch")
@pytest.mark.parametrize("case", ["softmax", "mos"])
def test_torchs_linear_cross_entropy_mixed_equals_the_loops(case):
    compare(implementations.torch_library, case)


@pytest.mark.skipif(not hasattr(torch.nn.functional, "linear_cross_entropy"), reason="not in this torch")
@pytest.mark.parametrize(("rows", "chunked"), [(2, False), (3, True)])
def test_torchs_linear_cross_entropy_has_chunks_from_as_many_rows_as_the_states_are_wide(rows, chunked, monkeypatch):
    seen, theirs = [], torch.nn.functional.linear_cross_entropy
    monkeypatch.setattr(
        torch.nn.functional,
        "linear_cross_entropy",
        lambda *given, options, **more: seen.append(options) or theirs(*given, options=options, **more),
    )
    given = Mixture(torch.ones(1, rows, 1, 3), None, torch.eye(4, 3))
    nats = implementations.torch_library(given, torch.zeros(rows, dtype=torch.int64))
    torch.testing.assert_close(nats, torch.full((rows,), math.log(3 * math.e + 1) - 1))
    assert [options is not None for options in seen] == [chunked]


@pytest.mark.system
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of torch's own deprecations
@pytest.mark.parametrize("case", ["softmax", "mos"])
def test_the_compiled_form_equals_the_loops(case):
    # traced and differentiated as for Inductor, without its half a minute of C++; each run checks what that makes
    compare(implementations.compiled(backend="aot_eager"), case)


def test_the_published_floor_shows_where_the_probability_is_smaller():
    # p = exp(-100) / (1 + exp(-100)), so log(p + 1e-8) = log(1e-8), whatever p is
    facets, weight = torch.ones(1, 1, 1, 1), torch.tensor([[100.0], [0.0]])
    nll = implementations.published(Mixture(facets, None, weight), torch.tensor([1]))
    torch.testing.assert_close(nll, -torch.tensor([1e-8]).log())


FP32 = ("fp32", "default")
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
TINY = SETTINGS["tiny"]


def mixture(partitions=(1,), logit_map="identity") -> Mixture:
    prior = torch.zeros(1, 2, len(partitions)) if len(partitions) > 1 else None
    facets, weight = torch.zeros(1, 2, sum(partitions), 3), torch.zeros(5, 3)
    return Mixture(facets, prior, weight, partitions=partitions, logit_map=LOGIT_MAPS[logit_map])


@pytest.mark.parametrize(
    ("exact", "asked", "found"),
    [
        (True, ("both", CPU), [FP32, ("fp32", "onednn"), ("bf16", "onednn")]),
        (False, ("both", CPU), [FP32, ("bf16", "default")]),
        (True, ("default", CPU), [FP32, ("bf16", "default")]),
        (True, ("onednn", CPU), [("fp32", "onednn"), ("bf16", "onednn")]),
        (True, ("both", CUDA), [FP32, ("bf16", "default")]),  # no routes on a GPU
    ],
)
def test_both_routes_are_measured_where_the_second_is_exact(monkeypatch, exact, asked, found):
    monkeypatch.setattr(products, "load_probe", lambda: SimpleNamespace(exact=exact))
    assert checked_ways(("fp32", "bf16"), *asked) == found


def test_ours_is_always_measured_and_the_compiled_form_when_asked_for():
    assert checked_impls(("published",), compile_too=False) == ("ours", "published")
    assert checked_impls(("published",), compile_too=True) == ("ours", "published", "compiled")
    for every in ((), ("all",)):
        assert set(IMPLEMENTATIONS) - set(checked_impls(every, compile_too=False)) == {"compiled"}


def test_what_an_implementation_lacks_is_said(monkeypatch):
    missing = None if hasattr(torch.nn.functional, "linear_cross_entropy") else "not in this torch"  # 2.11
    assert lacks(Cell("mfs", "torch", *FP32), mixture((2, 1)), TINY) == (missing or "no partitions")
    sigsoftmax = lacks(Cell("sigsoftmax", "torch", *FP32), mixture((1,), "sigsoftmax"), TINY)
    assert sigsoftmax == (missing or "no logit map")
    assert lacks(Cell("softmax", "liger", *FP32), mixture(), TINY) == "CUDA only"
    on_gpu = SimpleNamespace(facets_NFE=SimpleNamespace(device=CUDA), partitions=(1, 1), logit_map=None)
    assert lacks(Cell("mos2", "liger", *FP32), on_gpu, TINY) in ("not installed", "no mixtures")
    monkeypatch.setattr(implementations.shutil, "which", lambda name: None)
    assert lacks(Cell("softmax", "compiled", *FP32), mixture(), TINY) == "no C++ compiler"
    monkeypatch.setattr(implementations, "free_memory", lambda device: 4 * 4 * 70 * 2 * 97)
    assert lacks(Cell("mos2", "published", *FP32), mixture((1, 1)), TINY).startswith("needs about ")
    assert lacks(Cell("mos2", "ours", *FP32), mixture((1, 1)), TINY) == ""
    assert lacks(Cell("mos2", "ours-chunked", *FP32), mixture((1, 1)), TINY) == "no choice of forms"


def test_what_multiplies_in_bf16_only_is_no_float32_baseline(monkeypatch):
    monkeypatch.setitem(IMPLEMENTATIONS, "cce", IMPLEMENTATIONS["cce"]._replace(package=""))
    reasons = [lacks(Cell("softmax", "cce", p, "default"), mixture(), TINY) for p in ("fp32", "tf32", "bf16")]
    assert reasons == ["bf16 only", "bf16 only", ""]


@pytest.mark.parametrize(
    ("impl", "precision", "kernels", "product"),
    [
        ("ours", "bf16", "bf16", torch.float32),
        ("published", "bf16", "fp32", torch.bfloat16),  # under autocast
        ("published", "fp32", "fp32", torch.float32),
    ],
)
def test_ours_multiplies_as_the_cell_says_and_a_baseline_under_autocast(impl, precision, kernels, product):
    a = torch.ones(2, 2)
    with arithmetic(Cell("mos2", impl, precision, "default"), CPU):
        assert products.current().precision == kernels
        assert (a @ a).dtype == product


def test_ours_leaves_tf32_to_its_own_products_and_a_baseline_does_not():
    def allowed(impl: str) -> str:
        with arithmetic(Cell("mos2", impl, "tf32", "default"), CUDA):
            return torch.backends.cuda.matmul.fp32_precision

    assert (allowed("ours"), allowed("published")) == ("ieee", "tf32")


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("impl", ["ours", "published"])
def test_the_route_is_everyones(impl):
    with arithmetic(Cell("mos2", impl, "fp32", "onednn"), CPU):
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
