"""How much of the loss's gradient a head lets through: the gradient of the logits, against the columns of the output
matrix.

Letters: see harness/protocols.py; n contexts.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from harness.diagnostics.diagnostic import Count, Diagnostic, Figure, Result, Settings
from harness.diagnostics.positions import AT_PLACES, contexts
from harness.kernels import Tensors, reference
from harness.trial.trained import Trained

TOKENS_AT_ONCE = 64  # a block has the gradients of all components: K x V numbers a token
Share = Annotated[float, Field(ge=0, le=1)]


class Gradients(Result):
    """The result of the diagnostic: shares of squared norms, summed over contexts.

    Args:
        contexts: n.
        rank: of the output matrix.
        outside: of p - e, which the columns of W do not reach.
        outside_of_logits: of the gradients that the logits of all components have.
    """

    contexts: Count
    rank: Count
    outside: Share
    outside_of_logits: Share


def compute(subject: Trained, settings: Settings) -> Gradients:
    """Compute the share of a gradient that does not pass the output matrix, in float64.

    A head has logits z = f W^T + b, so the gradient of its facets is W^T g, g that of the logits. The part of g that is
    orthogonal to the columns of W (V x E) is lost: with Q an orthonormal basis of the columns,

        outside = 1 - sum_n |Q^T g_n|^2 / sum_n |g_n|^2

    `outside` has g = p - e, with p the distribution of the head and e that of the target: the gradient of a plain
    softmax. `outside_of_logits` has g = dL/dz, for all components of a mixture: r_k (p_k - e) phi'(z_k), with r_k the
    responsibility and phi the logit map. Words of one facet of several partitions have their rows of W only.

    Raises: NotDefined for a head without an output matrix.
    Source: Godey and Artzi (2026), arXiv:2603.10145, who report the share of the norm that is lost in language models;
        known to us at second hand.
    """
    sums = torch.zeros(2, 2, dtype=torch.float64)  # of p - e, of the logits; whole, within the columns
    bases: dict[int, list[Tensor]] = {}
    number = 0
    for mixture, targets_N in contexts(subject, settings.contexts).mixtures():
        number += len(targets_N)
        for P in {1, *mixture.partitions} - bases.keys():
            bases[P] = [_basis(mixture.weight_VE[p::P]) for p in range(P)]
        for at in torch.arange(len(targets_N)).split(TOKENS_AT_ONCE):
            some, targets_n = mixture.part(at), targets_N[at]
            g_nV = reference.log_probs(some).exp()
            g_nV[torch.arange(len(at)), targets_n] -= 1
            sums[0] += _squares(g_nV, bases[1])
            for g_nV, P in zip(_logit_gradients(some, targets_n), mixture.partitions, strict=True):
                sums[1] += _squares(g_nV, bases[P])
    whole_2, inside_2 = sums.T
    outside, of_logits = (1 - inside_2 / whole_2).clamp(0, 1).tolist()
    return Gradients(contexts=number, rank=bases[1][0].shape[1], outside=outside, outside_of_logits=of_logits)


def _logit_gradients(mixture: Tensors, targets_n: Tensor) -> list[Tensor]:
    """(n, V) the gradient of the summed loss to the logits of each component, before the logit map."""
    logits, logit_map = [], mixture.logit_map

    def noted(z_nV: Tensor) -> Tensor:
        logits.append(z_nV.detach().requires_grad_())
        return logit_map(logits[-1])

    with torch.enable_grad():
        return list(torch.autograd.grad(reference.nll(mixture.changed(logit_map=noted), targets_n).sum(), logits))


def _basis(weight_VE: Tensor) -> Tensor:
    """(V, rank) an orthonormal basis of the columns."""
    left_VE, singular_E, _ = torch.linalg.svd(weight_VE, full_matrices=False)
    return left_VE[:, singular_E > singular_E[0] * max(weight_VE.shape) * torch.finfo(weight_VE.dtype).eps]


def _squares(g_nV: Tensor, bases: list[Tensor]) -> Tensor:
    """(2,) the sum of squares of g, and of its part within the columns."""
    P = len(bases)
    inside = sum((g_nV[:, p::P] @ basis).square().sum() for p, basis in enumerate(bases))
    return torch.stack((g_nV.square().sum(), inside)).cpu()


DIAGNOSTIC = Diagnostic(
    name="gradients",
    title="Gradients through the output matrix",
    module=__name__,
    settings=("contexts",),
    result=Gradients,
    compute=compute,
    figures=(
        Figure(name="rank of W", value=lambda each: each.rank),
        Figure(name="lost of p - e (%)", value=lambda each: 100 * each.outside, digits=2, on_terminal=True),
        Figure(name="lost of dL/dz (%)", value=lambda each: 100 * each.outside_of_logits, digits=2, on_terminal=True),
    ),
    contexts=AT_PLACES,
    notes=(
        "lost: the share of a gradient's squared norm that is orthogonal to the columns of the output matrix W, and so "
        "does not reach the facets. p - e: the head's probabilities less the target's. dL/dz: the gradient of the "
        "logits of all components. Godey and Artzi (2026, read at second hand) report 95 to 99 % for language models.",
    ),
)
