"""Can this head say it? Heads fitted to distributions that a softmax cannot have, without a language model.

Letters: see harness/protocols.py; here N contexts with a target distribution each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from harness.errors import ExecutionError
from harness.experiments.convex_optimum import entropy, lowest_kl
from harness.plan.specs import ComponentSpec
from harness.protocols import HeadDims, Hidden
from harness.random_streams import seeded
from harness.registry import HEADS

VOCABULARY, WIDTH, LAYERS = 100, 16, 3
SCALE = 3.0  # the standard deviation of W: facets within [-1, 1], after a tanh, can then make a word probable
MODES, CONTEXTS = 8, 10  # of many_words
STARTS, STEPS = 4, 1000  # L-BFGS
ROWS = (
    ComponentSpec(name="softmax"),
    ComponentSpec(name="softmax", params={"softcap": 30.0}),
    ComponentSpec(name="sigsoftmax"),
    ComponentSpec(name="gss"),
    ComponentSpec(name="plif", params={"num_pieces": 100}),
    ComponentSpec(name="moc", params={"num_mixtures": 4}),
    ComponentSpec(name="mos", params={"num_mixtures": 2}),
    ComponentSpec(name="mos", params={"num_mixtures": 2, "activation": "none"}),
    ComponentSpec(name="mos", params={"num_mixtures": 4, "activation": "none"}),
    ComponentSpec(name="doc", params={"components": {"top": 2, "second": 2}}),
    ComponentSpec(name="mfs", params={"num_mixtures": 1, "num_input_layers": 1, "window": 0}),
    ComponentSpec(name="mfs", params={"num_input_layers": 1, "window": 0}),
    ComponentSpec(name="mixtape"),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """An output matrix that is given, and distributions to be reached with it.

    Shapes: weight (V, d), target (N, V), float64; each target sums to 1.
    """

    weight: Tensor
    target: Tensor


def king_and_woman(seed: int) -> Problem:
    """'king' and 'woman' have 1/2 each, where w_king + w_woman = w_queen + w_man.

    For every state then z_king + z_woman = z_queen + z_man. So one softmax has p_king p_woman = p_queen p_man, and with
    p_king = p_woman = p the others have at least 2 p together: p <= 1/4, and KL >= log 2.
    Source: the theorem of Chang and McCallum's multi-facet softmax, known from the poster.
    """
    weight_VD, (king, woman, queen, man, *_) = _drawn(seed)
    weight_VD[king] = weight_VD[queen] + weight_VD[man] - weight_VD[woman]
    return Problem(weight=weight_VD, target=_uniform(torch.stack([king, woman])[None]))


def rare_word(seed: int) -> Problem:
    """One word has probability 1, and its w is the mean of those of four other words.

    Its logit is the mean of theirs. So one softmax has p <= (p_1 p_2 p_3 p_4)^(1/4), thus p <= 1/5 and KL >= log 5.
    The same holds for every component of a mixture, so for the mixture too.
    Source: Demeter et al. (2020), Stolen probability: a word inside the convex hull of others; known from its abstract.
    """
    weight_VD, (word, *others) = _drawn(seed)
    weight_VD[word] = weight_VD[torch.stack(others[:4])].mean(0)
    return Problem(weight=weight_VD, target=_uniform(word[None, None]))


def many_words(seed: int) -> Problem:
    """In each of CONTEXTS contexts MODES random words have the same probability; the head's parameters are shared."""
    weight_VD, _ = _drawn(seed)
    with seeded(seed, "expressiveness", "many words"):
        words_NM = torch.stack([torch.randperm(VOCABULARY)[:MODES] for _ in range(CONTEXTS)])
    return Problem(weight=weight_VD, target=_uniform(words_NM))


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "king and woman": king_and_woman,
    "rare word": rare_word,
    f"{MODES} words": many_words,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What was reached: for each problem the lowest KL in nats, one for each seed."""

    name: str
    kl: dict[str, tuple[float, ...]]


def optimum(seeds: Sequence[int], *, bound: float | None = None) -> Reached:
    """What one softmax can reach at best, by convex optimisation; with a bound, of states within [-bound, bound]."""
    name = "one softmax, convex optimum" + ("" if bound is None else f", states in [-{bound:g}, {bound:g}]")
    return Reached(name=name, kl=_over(seeds, lambda each, _: lowest_kl(each.weight, each.target, bound=bound)))


def reached(row: ComponentSpec, seeds: Sequence[int]) -> Reached:
    """What a head reaches. Raises as best_kl does."""
    return Reached(name=str(row), kl=_over(seeds, lambda each, seed: best_kl(row, each, seed)))


def _over(seeds: Sequence[int], value: Callable[[Problem, int], float]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(value(make(seed), seed) for seed in seeds) for name, make in PROBLEMS.items()}


def best_kl(row: ComponentSpec, problem: Problem, seed: int) -> float:
    """The lowest KL(target || head) in nats that was found, a mean over contexts, in float64:

    min over states h_n and the head's parameters of  mean_n sum_x t_n(x) (log t_n(x) - log p(x | h_n))

    The output matrix is the problem's, and output biases are 0. The states of all layers are free, one for each
    context. L-BFGS from STARTS random states and initial weights; the lowest counts. For mixtures this is no convex
    problem: a head may reach less than what is found.
    Raises: ExecutionError when the head cannot be built, or has not exactly one parameter of shape (V, d).
    """
    return min(_fitted(row, problem, (seed, start)) for start in range(STARTS))


def _fitted(row: ComponentSpec, problem: Problem, stream: tuple[int, int]) -> float:
    with seeded(stream[0], "expressiveness", "fit", stream[1]):
        head = _head(row, problem.weight)
        shape = (len(problem.target), 1, WIDTH)
        layers = tuple(torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(LAYERS))
        free = [*layers, *(parameter for parameter in head.parameters() if parameter.requires_grad)]
        steps = torch.optim.LBFGS(
            free, max_iter=STEPS, line_search_fn="strong_wolfe", tolerance_grad=1e-10, tolerance_change=1e-12
        )

        def loss() -> Tensor:
            steps.zero_grad()
            logp_NV = head(Hidden(layers)).log_probs()[:, 0]
            cross_entropy = -(problem.target * logp_NV).sum(1).mean()
            cross_entropy.backward()
            return cross_entropy

        steps.step(loss)
        return loss().item() - entropy(problem.target)


def _head(row: ComponentSpec, weight_VD: Tensor) -> nn.Module:
    """The head in float64, with a fixed output matrix and no output bias."""
    V, D = weight_VD.shape
    counts = torch.ones(V, dtype=torch.int64)
    dims = HeadDims(vocab_size=V, layer_dims=(D,) * LAYERS, d_embed=D, token_counts=counts)
    try:
        head = HEADS.get(row.name)(dims, nn.Embedding(V, D), **row.params).double().eval()
    except ValueError as error:
        raise ExecutionError(f"head {row}: {error}") from error
    matrices = [parameter for parameter in head.parameters() if parameter.shape == weight_VD.shape]
    if len(matrices) != 1:
        raise ExecutionError(
            f"head {row}: expected one parameter of shape ({V}, {D}), the output matrix, found {len(matrices)}"
        )
    with torch.no_grad():
        matrices[0].copy_(weight_VD)
        for parameter in [matrices[0], *(each for each in head.parameters() if each.shape == (V,))]:
            parameter.requires_grad_(False)
            if parameter.ndim == 1:
                parameter.zero_()
    return head


def _drawn(seed: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A random output matrix, and all words in random order."""
    with seeded(seed, "expressiveness"):
        weight_VD = SCALE * torch.randn(VOCABULARY, WIDTH, dtype=torch.float64)
        return weight_VD, tuple(torch.randperm(VOCABULARY))


def _uniform(words_NM: Tensor) -> Tensor:
    """(N, V) the distributions that are uniform over some words."""
    N, M = words_NM.shape
    return torch.zeros(N, VOCABULARY, dtype=torch.float64).scatter(1, words_NM, 1 / M)
