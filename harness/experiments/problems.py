"""Distributions that one softmax cannot have, for the experiment `expressiveness`.

Letters: see harness/protocols.py; here N contexts with a target distribution each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from harness.random_streams import seeded

VOCABULARY, WIDTH = 100, 16
SCALE = 3.0  # the standard deviation of W: facets within [-1, 1], after a tanh, can then make a word probable
MODES, CONTEXTS = (2, 4, 8, 16), 10  # of many_words


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """An output matrix that is given, and distributions to be reached with it.

    Shapes: weight (V, d), target (N, V), float64; each target sums to 1; words (R,), the ids of all words that the
    problem is about, first those with a target probability.
    """

    weight: Tensor
    target: Tensor
    words: Tensor


def entropy(target_NV: Tensor) -> float:
    """The mean entropy of some distributions in nats."""
    return float(torch.special.entr(target_NV).sum(1).mean())


def king_and_woman(seed: int) -> Problem:
    """'king' and 'woman' have 1/2 each, where w_king + w_woman = w_queen + w_man.

    For every state then z_king + z_woman = z_queen + z_man. So one softmax has p_king p_woman = p_queen p_man, and with
    p_king = p_woman = p the others have at least 2 p together: p <= 1/4, and KL >= log 2.
    Source: the theorem of Chang and McCallum's multi-facet softmax, known from the poster.
    """
    weight_VD, order_V = _drawn(seed)
    king, woman, queen, man = order_V[:4]
    weight_VD[king] = weight_VD[queen] + weight_VD[man] - weight_VD[woman]
    return Problem(weight=weight_VD, target=_uniform(order_V[None, :2]), words=order_V[:4])


def rare_word(seed: int) -> Problem:
    """One word has probability 1, and its w is the mean of those of four other words.

    Its logit is the mean of theirs. So one softmax has p <= (p_1 p_2 p_3 p_4)^(1/4), thus p <= 1/5 and KL >= log 5.
    The same holds for every component of a mixture, so for the mixture too.
    Source: Demeter et al. (2020), Stolen probability: a word inside the convex hull of others; known from its abstract.
    """
    weight_VD, order_V = _drawn(seed)
    weight_VD[order_V[0]] = weight_VD[order_V[1:5]].mean(0)
    return Problem(weight=weight_VD, target=_uniform(order_V[None, :1]), words=order_V[:5])


def many_words(seed: int, *, modes: int) -> Problem:
    """In each of CONTEXTS contexts some random words have the same probability; the head's parameters are shared.

    Args:
        modes: k, the number of words in each context. Those of a smaller k are among those of a larger one.
    """
    weight_VD, _ = _drawn(seed)
    with seeded(seed, "expressiveness", "many words"):
        words_NM = torch.stack([torch.randperm(VOCABULARY)[:modes] for _ in range(CONTEXTS)])
    return Problem(weight=weight_VD, target=_uniform(words_NM), words=words_NM.unique())


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "king and woman": king_and_woman,
    "rare word": rare_word,
    **{f"{modes} words": partial(many_words, modes=modes) for modes in MODES},
}


def _drawn(seed: int) -> tuple[Tensor, Tensor]:
    """A random output matrix, and all words in random order."""
    with seeded(seed, "expressiveness"):
        weight_VD = SCALE * torch.randn(VOCABULARY, WIDTH, dtype=torch.float64)
        return weight_VD, torch.randperm(VOCABULARY)


def _uniform(words_NM: Tensor) -> Tensor:
    """(N, V) the distributions that are uniform over some words."""
    N, M = words_NM.shape
    return torch.zeros(N, VOCABULARY, dtype=torch.float64).scatter(1, words_NM, 1 / M)
