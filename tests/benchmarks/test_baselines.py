"""The baselines compute what they are said to: the oracles' loops in float64, values and gradients."""

import oracles
import pytest
import torch
from torch import Tensor

from harness.benchmarks import baselines
from harness.distributions import LOGIT_MAPS, Mixture

N, E, V = 5, 4, 11
MIXTURES = {  # partitions, output bias, logit map
    "softmax": ((1,), True, "identity"),
    "mos": ((1, 1, 1), True, "identity"),
    "mfs": ((4, 1, 1), False, "identity"),
    "partitions with a bias": ((1, 3, 2), True, "identity"),
    "sigsoftmax": ((1,), True, "sigsoftmax"),
    "a mixture of sigsoftmaxes": ((1, 2), False, "sigsoftmax"),
}
EXACT = [baselines.log_space, baselines.target_only, baselines.published]


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
    compare(evaluation, case, {"log_epsilon": 1e-8} if evaluation is baselines.published else None)


@pytest.mark.skipif(not hasattr(torch.nn.functional, "linear_cross_entropy"), reason="not in this torch")
@pytest.mark.parametrize("case", ["softmax", "mos"])
def test_torchs_linear_cross_entropy_mixed_equals_the_loops(case):
    compare(baselines.torch_library, case)


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of torch's own deprecations
@pytest.mark.parametrize("case", ["softmax", "mos"])
def test_the_compiled_form_equals_the_loops(case):
    # traced and differentiated as for Inductor, without its half a minute of C++; each run checks what that makes
    compare(baselines.compiled(backend="aot_eager"), case)


def test_the_published_floor_shows_where_the_probability_is_smaller():
    # p = exp(-100) / (1 + exp(-100)), so log(p + 1e-8) = log(1e-8), whatever p is
    facets, weight = torch.ones(1, 1, 1, 1), torch.tensor([[100.0], [0.0]])
    nll = baselines.published(Mixture(facets, None, weight), torch.tensor([1]))
    torch.testing.assert_close(nll, -torch.tensor([1e-8]).log())
