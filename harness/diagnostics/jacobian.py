"""The Jacobian of a head: how its log-probabilities change with the hidden state of the top layer.

Letters: see harness/protocols.py; n contexts.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from harness import kernels
from harness.diagnostics.diagnostic import Amount, Count, Curves, Diagnostic, Figure, Result, Settings
from harness.diagnostics.positions import Scored, contexts
from harness.distributions import Mixture
from harness.model import LanguageModel
from harness.protocols import Hidden
from harness.trial.trained import Trained

POSITIONS = 100  # a Jacobian takes D evaluations of the head


class Jacobian(Result):
    """The result of the diagnostic: n contexts, and singular values, the largest first, each the mean over contexts."""

    contexts: Count
    values: Annotated[tuple[Amount, ...], Field(min_length=1)]

    def below(self, share: float) -> float:
        return sum(value < share * self.values[0] for value in self.values) / len(self.values)


def compute(subject: Trained, settings: Settings) -> Jacobian:
    """Compute the singular values of J = d log p(. | context) / dh, (V, D), in float64, averaged over contexts.

    h is the state of the top layer at the position that is scored. States of lower layers and of earlier positions stay
    as they are. A softmax has J = W - 1 p^T W, in which a direction that changes all logits alike is lost.

    The contexts are the last scored positions of the first POSITIONS rows of the segments that the other diagnostics
    use.
    Source: Orhan's note on mixtures of experts looks at the Jacobian of a layer in this way; see
        harness/experiments/degeneracy.py.
    """
    parts = contexts(subject, settings.contexts).parts
    rows = [(part, row) for part in parts for row in part.chosen.any(1).nonzero()[:, 0].tolist()][:POSITIONS]
    sums = sum(torch.linalg.svdvals(_jacobian(subject.wide, part, row)) for part, row in rows)
    return Jacobian(contexts=len(rows), values=tuple((sums / len(rows)).tolist()))


def _jacobian(model: LanguageModel, part: Scored, row: int) -> Tensor:
    """(V, D) J at the last chosen position of a row.

    J^T u is computed with its graph, for any u: it is linear in u, and the gradient of its entry d is column d of J.
    That is D backward passes, and not V.
    """
    at = int(part.chosen[row].nonzero()[-1])
    *lower, top_BTD = (h_BTD[row : row + 1, : at + 1] for h_BTD in part.hidden.layers)
    with torch.enable_grad():
        state_D = top_BTD[0, -1].detach().requires_grad_()
        top = torch.cat((top_BTD[:, :-1], state_D[None, None]), dim=1)
        distribution = model.head(Hidden((*lower, top)))
        if isinstance(distribution, Mixture):
            logp_V = kernels.log_probs(distribution.changed(log_epsilon=None).part(slice(-1, None)))[0]
        else:
            logp_V = distribution.log_probs()[0, -1]
        u_V = torch.zeros_like(logp_V, requires_grad=True)
        (product_D,) = torch.autograd.grad(logp_V, state_D, u_V, create_graph=True)
    columns = [torch.autograd.grad(entry, u_V, retain_graph=True)[0] for entry in product_D]
    return torch.stack(columns, dim=1)


DIAGNOSTIC = Diagnostic(
    name="jacobian",
    title="Jacobian of the log-probabilities",
    module=__name__,
    settings=("contexts",),
    result=Jacobian,
    compute=compute,
    figures=(
        Figure(name="largest s", value=lambda each: each.values[0], digits=2),
        Figure(name="s below 1 % of it (%)", value=lambda each: 100 * each.below(0.01), digits=1, on_terminal=True),
        Figure(name="s below 10 % of it (%)", value=lambda each: 100 * each.below(0.1), digits=1, on_terminal=True),
    ),
    contexts="scored positions of the validation split, each the last one in a row of the segments of the spectrum",
    notes=(
        "s: singular values of the Jacobian of the log-probabilities by the state of the top layer, averaged over "
        f"{POSITIONS} contexts, or over all if there are fewer.",
    ),
    plots=(
        Curves(
            name="jacobian",
            title="Jacobian of the log-probabilities",
            x="number of the singular value, the largest first",
            y="singular value",
            points=lambda each: [value for value in each.values if value > 0],
        ),
    ),
)
