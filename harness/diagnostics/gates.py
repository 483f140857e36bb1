"""What the components of a trained mixture do: gates, dead components, shares of the loss, facets, rare words.

Letters: see harness/protocols.py; N contexts.
"""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from harness import kernels
from harness.diagnostics.diagnostic import Amount, Count, Diagnostic, Figure, NotDefined, Result, Settings
from harness.diagnostics.facets import components_of
from harness.diagnostics.positions import AT_PLACES, contexts
from harness.kernels import Tensors
from harness.trial.trained import Trained

DEAD = 0.01  # of the even share 1 / K: a component with less responsibility is dead
NONE = "is no mixture of softmaxes over one output matrix, so it has no gates"
ONE = (
    "has one softmax with one facet, so no softmaxes are mixed; weights that mix hidden states before it are not "
    "counted as gates"
)
Shares = Annotated[tuple[float, ...], Field(min_length=1)]  # one for each component


class Band(Result):
    """The contexts whose target occurs so many times in the training split, '10-99', and the mean responsibility of
    each component in them.
    """

    label: str
    contexts: Count
    responsibility: Shares


class Gates(Result):
    """The result of the diagnostic. Lists have an entry for each component.

    Args:
        contexts: N.
        gate_entropy: in nats, the mean over contexts of the entropy of the gate.
        used: exp of the entropy of the mean gate: how many components are used, from 1 to K.
        mean_gate: the mean weight pi_k.
        responsibility: the mean of r_k = pi_k p_k(y) / p(y), y the target.
        dead: the number of components with a mean responsibility below 0.01 / K.
        nll_share: the sum of r_k nll over contexts, as a share of the sum of nll.
        facet_cosine: the mean cosine of two different facets of a context; None with one facet.
        facet_cosine_sd: its standard deviation over contexts and pairs.
        bands: by how often the target occurs in training.
        band_change: half the sum over components of the absolute difference in responsibility between the lowest and
            the highest band: 0: equal, 1: other components; None with one band.
    """

    contexts: Count
    gate_entropy: Amount
    used: Amount
    mean_gate: Shares
    responsibility: Shares
    dead: Count
    nll_share: Shares
    facet_cosine: float | None
    facet_cosine_sd: float | None
    bands: tuple[Band, ...]
    band_change: float | None


def compute(subject: Trained, settings: Settings) -> Gates:
    """Compute, for every context and component k, the gate pi_k and the responsibility r_k, in float64:

    r_k = pi_k p_k(y) / p(y),  the posterior probability that component k produced the target y

    Raises: NotDefined for a head that is no mixture, or is one softmax with one facet: a mixture of contexts is one,
        too, because it mixes hidden states before its softmax.
    """
    parts = []
    for mixture, targets_N in contexts(subject, settings.contexts).mixtures(NONE):
        if mixture.facets_NFE.shape[1] == 1:
            raise NotDefined(f"{subject.model.head_name} {ONE}")
        parts.append((*_of_part(mixture, targets_N), targets_N))
    log_gate_NK, nll_NK, cosine_NC, targets_N = (torch.cat(each) for each in zip(*parts, strict=True))
    joint_NK = log_gate_NK - nll_NK
    r_NK, nll_N = joint_NK.softmax(1), -joint_NK.logsumexp(1)
    gate_NK, mean_gate_K = log_gate_NK.exp(), log_gate_NK.exp().mean(0)
    responsibility_K = r_NK.mean(0)
    bands = _bands(r_NK, subject.corpus.token_counts.to(targets_N.device)[targets_N])
    return Gates(
        contexts=len(targets_N),
        gate_entropy=float(torch.special.entr(gate_NK).sum(1).mean()),
        used=float(torch.special.entr(mean_gate_K).sum().exp()),
        mean_gate=tuple(mean_gate_K.tolist()),
        responsibility=tuple(responsibility_K.tolist()),
        dead=int((responsibility_K < DEAD / len(responsibility_K)).sum()),
        nll_share=tuple(((r_NK * nll_N[:, None]).sum(0) / nll_N.sum()).tolist()),
        facet_cosine=float(cosine_NC.mean()) if cosine_NC.numel() else None,
        facet_cosine_sd=float(cosine_NC.std()) if cosine_NC.numel() > 1 else None,
        bands=bands,
        band_change=_change(bands[0], bands[-1]) if len(bands) > 1 else None,
    )


def _of_part(mixture: Tensors, targets_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(N, K) log-gates and nll of each component, (N, C) cosines of pairs of facets."""
    nll_NK = torch.stack([kernels.nll(each, targets_N) for each in components_of(mixture)], dim=1)
    log_gate_NK = torch.zeros_like(nll_NK) if mixture.log_prior_NK is None else mixture.log_prior_NK
    directions_NFE = functional.normalize(mixture.facets_NFE, dim=-1)
    F = mixture.facets_NFE.shape[1]
    first, second = torch.triu_indices(F, F, offset=1)
    return log_gate_NK, nll_NK, (directions_NFE @ directions_NFE.mT)[:, first, second]


def _bands(r_NK: Tensor, count_N: Tensor) -> tuple[Band, ...]:
    """Bands 0, 1-9, 10-99 and so on, without empty ones."""
    found, low, high = [], 0, 1
    while low <= int(count_N.max()):
        inside_N = (low <= count_N) & (count_N < high)
        if inside_N.any():
            label = str(low) if high == low + 1 else f"{low}-{high - 1}"
            mean_K = r_NK[inside_N].mean(0)
            found.append(Band(label=label, contexts=int(inside_N.sum()), responsibility=tuple(mean_K.tolist())))
        low, high = high, 10 * high
    return tuple(found)


def _change(low: Band, high: Band) -> float:
    return math.fsum(abs(a - b) for a, b in zip(low.responsibility, high.responsibility, strict=True)) / 2


DIAGNOSTIC = Diagnostic(
    name="gates",
    title="Gates and facets of the mixtures",
    module=__name__,
    settings=("contexts",),
    result=Gates,
    compute=compute,
    figures=(
        Figure(name="K", value=lambda each: len(each.mean_gate), on_terminal=True),
        Figure(name="gate entropy", value=lambda each: each.gate_entropy, digits=3, on_terminal=True),
        Figure(name="used", value=lambda each: each.used, digits=2, on_terminal=True),
        Figure(name="dead", value=lambda each: each.dead, digits=1, on_terminal=True),
        Figure(name="largest share of nll", value=lambda each: max(each.nll_share), digits=3),
        Figure(name="smallest share of nll", value=lambda each: min(each.nll_share), digits=3),
        Figure(name="facet cosine", value=lambda each: each.facet_cosine, digits=3),
        Figure(name="its sd", value=lambda each: each.facet_cosine_sd, digits=3),
        Figure(name="rare to frequent", value=lambda each: each.band_change, digits=3),
    ),
    contexts=AT_PLACES,
    notes=(
        "gate entropy: in nats, at most log K. used: exp of the entropy of the mean gate, from 1 to K. dead: the "
        "number of components with a mean responsibility below 0.01 / K. share of nll: the loss, divided among "
        "components by responsibility. facet cosine: mean over pairs of facets of a context; its sd: over contexts and "
        "pairs. rare to frequent: how much of the responsibility moves between the rarest and the most frequent band "
        "of targets, from 0 to 1.",
    ),
)
