"""A head fitted to target distributions: hidden states and parameters are free, the output matrix is given."""

from typing import Literal

import torch
from torch import Tensor, nn

from harness.errors import ExecutionError
from harness.experiments.problems import Problem, entropy
from harness.plan.specs import ComponentSpec
from harness.protocols import HeadDims, Hidden
from harness.random_streams import seeded
from harness.registry import HEADS

LAYERS = 3
STATE_SCALES = (0.01, 0.1, 0.3, 1.0)  # standard deviations of the initial states: see best_kl
STARTS = 8  # each scale is used twice
FIRST_STEPS, MORE_STEPS, HISTORY = 150, 600, 20  # L-BFGS: of each start, of the best one; stored steps
SOLVED = 1e-5  # nats: a start that comes below is not continued, and no other one is tried
Frequency = Literal["frequent", "rare"]


def best_kl(spec: ComponentSpec, problem: Problem, seed: int, *, words: Frequency = "frequent") -> float:
    """The lowest KL(target || head) in nats that was found, a mean over contexts, in float64:

    min over states h_n and the head's parameters of  mean_n sum_x t_n(x) (log t_n(x) - log p(x | h_n))

    The output matrix is the problem's, and output biases are 0. The states of all layers are free. A head with a
    `window` reads that many positions before: then each context has states of its own for these positions too, and the
    distribution at the last position counts.

    L-BFGS from STARTS random states and initial weights, FIRST_STEPS each, then MORE_STEPS from the lowest of them. For
    mixtures this is no convex problem: a head may reach less than what is found. The initial states have several
    scales. From large ones the components of a mixture differ by tens of nats at the start, and the gate leaves all but
    one of them before they are fitted; from small ones all components are nearly uniform.

    Args:
        words: for heads that read token counts: the words of the problem are the most frequent ones of the vocabulary,
            in the order of their target probability, or the rarest ones. For Mixtape this decides which words have
            their own gates.
    Raises: ExecutionError when the head cannot be built, or has not exactly one parameter of shape (V, d).
    """
    lowest: tuple[float, _Fit | None] = (float("inf"), None)
    for start in range(STARTS):
        with seeded(seed, "expressiveness", "fit", start):
            fit = _Fit(_head(spec, problem, words), problem, STATE_SCALES[start % len(STATE_SCALES)])
        kl = fit.advance(FIRST_STEPS)
        lowest = min(lowest, (kl, fit), key=lambda each: each[0])
        if kl < SOLVED:
            break
    kl, fit = lowest
    return kl if fit is None or kl < SOLVED else min(kl, fit.advance(MORE_STEPS))


class _Fit:
    """One start: a head, the states of all contexts, and the optimizer with its history."""

    def __init__(self, head: nn.Module, problem: Problem, scale: float):
        self.head, self.target, self.entropy = head, problem.target, entropy(problem.target)
        shape = (len(problem.target), 1 + getattr(head, "window", 0), problem.weight.shape[1])
        states = [scale * torch.randn(shape, dtype=torch.float64) for _ in range(LAYERS)]
        self.layers = tuple(state.requires_grad_() for state in states)
        self.free = [*self.layers, *(parameter for parameter in head.parameters() if parameter.requires_grad)]
        self.steps = torch.optim.LBFGS(
            self.free, history_size=HISTORY, line_search_fn="strong_wolfe", tolerance_grad=1e-10, tolerance_change=1e-12
        )

    def advance(self, steps: int) -> float:
        """Some steps of L-BFGS; returns the KL afterwards."""
        group = self.steps.param_groups[0]
        group["max_iter"], group["max_eval"] = steps, 5 * steps // 4  # torch's own proportion
        self.steps.step(self._loss)
        return self._loss().item() - self.entropy

    def _loss(self) -> Tensor:
        self.steps.zero_grad()
        logp_NV = self.head(Hidden(self.layers)).log_probs()[:, -1]
        cross_entropy = -(self.target * logp_NV).sum(1).mean()
        cross_entropy.backward()
        return cross_entropy


def _head(spec: ComponentSpec, problem: Problem, words: Frequency) -> nn.Module:
    """The head in float64, with a fixed output matrix and no output bias."""
    V, D = problem.weight.shape
    dims = HeadDims(vocab_size=V, layer_dims=(D,) * LAYERS, d_embed=D, token_counts=token_counts(problem, words))
    try:
        head = HEADS.get(spec.name)(dims, nn.Embedding(V, D), **spec.params).double().eval()
    except ValueError as error:
        raise ExecutionError(f"head {spec}: {error}") from error
    matrices = [parameter for parameter in head.parameters() if parameter.shape == problem.weight.shape]
    if len(matrices) != 1:
        raise ExecutionError(
            f"head {spec}: expected one parameter of shape ({V}, {D}), the output matrix, found {len(matrices)}"
        )
    with torch.no_grad():
        matrices[0].copy_(problem.weight)
        for parameter in [matrices[0], *(each for each in head.parameters() if each.shape == (V,))]:
            parameter.requires_grad_(False)
            if parameter.ndim == 1:
                parameter.zero_()
    return head


def token_counts(problem: Problem, words: Frequency) -> Tensor:
    """(V,) the counts 1 .. V. The words of the problem have the highest ones, first those with the most target
    probability; or, 'rare', the lowest ones, in the opposite order.
    """
    V = len(problem.weight)
    rank_V = problem.target.sum(0)
    rank_V[problem.words] += 1  # before all words that the problem is not about
    order = torch.argsort(rank_V, descending=words == "frequent", stable=True)
    return torch.empty(V, dtype=torch.int64).scatter(0, order, torch.arange(V, 0, -1))
