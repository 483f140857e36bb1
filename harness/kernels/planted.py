"""Small batches of every kind of mixture, on which forms of the loss are checked without a trial."""

from typing import NamedTuple

import torch
from torch import Tensor

from harness.kernels.mixture import Bend, LeanMap, SigmoidCap, SoftCap, StableMax, Tensors, identity


class Case(NamedTuple):
    """N tokens, V words, width E, and the kind of the mixture."""

    name: str
    N: int
    V: int
    E: int
    partitions: tuple[int, ...] = (1,)
    logit_map: LeanMap | None = None
    bias: bool = False
    log_epsilon: float | None = None


CASES = (
    Case("one component", N=7, V=37, E=5),
    Case("three components", N=43, V=401, E=33, partitions=(1, 1, 1)),
    Case("three components with bias", N=13, V=129, E=64, partitions=(1, 1, 1), bias=True),
    Case("partitions 4, 1, 1", N=9, V=53, E=21, partitions=(4, 1, 1)),
    Case("partitions 1, 3 with an epsilon", N=5, V=46, E=8, partitions=(1, 3), log_epsilon=0.01),
    # more than one step of the Triton kernels, an incomplete step, several shares of the vocabulary
    Case("many words", N=3, V=8_209, E=70),
    Case("wide, with bias", N=64, V=2_003, E=300, bias=True),  # logits that bfloat16 would round with the bias
    Case("more tokens than are compared", N=700, V=61, E=16, partitions=(1, 1), bias=True),
    Case("a bend", N=11, V=41, E=9, partitions=(1, 1), logit_map=Bend(c=0.0, k=2.0)),
    Case("a bend, partitions, bias", N=11, V=43, E=9, partitions=(2, 1), logit_map=Bend(c=0.5, k=1.5), bias=True),
    Case("a tight soft cap", N=11, V=41, E=9, partitions=(1, 1), logit_map=SoftCap(c=3.0)),
    Case("the soft cap of Gemma 2", N=13, V=401, E=64, partitions=(1, 1), logit_map=SoftCap(c=30.0)),
    Case("a sigmoid cap", N=11, V=41, E=9, partitions=(1, 1), logit_map=SigmoidCap(a=23.0, b=5.0, c=7.5), bias=True),
    Case("a steep sigmoid cap", N=11, V=41, E=9, partitions=(2, 1), logit_map=SigmoidCap(a=3.0, b=-0.5, c=0.3)),
    Case("a stablemax", N=11, V=41, E=9, partitions=(2, 1), logit_map=StableMax(), bias=True),
)


def batch(case: Case, device: torch.device, dtype: torch.dtype = torch.float32) -> tuple[Tensors, Tensor]:
    """The mixture of a case, whose tensors require gradients and whose logits are standard normal, and its targets:
    the last word, the first one, and others. For the last token the last word has a high logit, so that none may miss
    it.
    """
    generator = torch.Generator().manual_seed(case.N)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(*shape, generator=generator)).to(device, dtype).requires_grad_()

    K, F = len(case.partitions), sum(case.partitions)
    facets_NFE, weight_VE = normal(case.N, F, case.E), normal(case.V, case.E, scale=case.E**-0.5)
    with torch.no_grad():
        facet_E = facets_NFE[-1, (case.V - 1) % case.partitions[0]]
        weight_VE[-1] = 4 * facet_E / facet_E.square().sum()
    prior_NK = normal(case.N, K).detach().log_softmax(-1).requires_grad_() if K > 1 else None
    bias_V = normal(case.V) if case.bias else None
    logit_map = identity if case.logit_map is None else case.logit_map
    targets_N = torch.randint(case.V, (case.N,), generator=generator)
    targets_N[:2] = torch.tensor([case.V - 1, 0])[: case.N]
    mixture = Tensors(facets_NFE, prior_NK, weight_VE, bias_V, case.partitions, logit_map, case.log_epsilon)
    return mixture, targets_N.to(device)
