"""Which words one softmax can put first: states that do it, or a proof that none does.

Letters: see harness/protocols.py; n states.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

ROWS_AT_ONCE = 256  # of the V x V products of rows
MARGIN = 1e-9  # of normalised differences; smaller ones are rounding errors
SECONDS = 60.0  # for one linear program; a word may need several
ALL_SECONDS = 3600.0  # for the linear programs of all words together
ADDED = 64  # constraints in each round


@dataclass(slots=True, kw_only=True)
class FirstWords:
    """What is known of every word.

    Args:
        in_contexts, along_rows, by_program: words that a state puts first, by where that state was found.
        never: words that no state puts first.
        undecided: words of which neither could be shown.
    """

    in_contexts: list[int]
    along_rows: list[int]
    by_program: list[int] = field(default_factory=list)
    never: list[int] = field(default_factory=list)
    undecided: list[int] = field(default_factory=list)


def decide(weight_VE: Tensor, bias_V: Tensor, states: Iterable[Tensor], *, seconds: float = ALL_SECONDS) -> FirstWords:
    """Decide for every word x whether some h in R^E has w_x . h + b_x > w_y . h + b_y for all other words y.

    There is none if and only if (w_x, b_x) is below or on the convex hull of the others:

        sum_y l_y w_y = w_x  and  sum_y l_y b_y >= b_x   for some l_y >= 0 with sum_y l_y = 1

    First it looks for a state that does it: the given ones, then s w_x and s (w_x - mean w) for all s > 0. For the
    words that are left a linear program finds a state or the l_y, in the order of their numbers. Each of them needs a
    V x (E + 1) array in float64.

    Args:
        weight_VE, bias_V: float64.
        states: blocks (n, E) of trained states.
        seconds: for the linear programs of all words together. Words that are not reached in it are undecided, so which
            words these are depends on the machine.
    Source: Demeter et al. (2020), arXiv:2005.02433, and Grivas et al. (2022), arXiv:2203.06462 (the exact test by a
        linear program); both from memory, NOT CONFIRMED in the papers.
    Differs: theirs solves one program with all V constraints; ours adds constraints until they suffice.
    """
    first_V = torch.zeros(len(weight_VE), dtype=torch.bool, device=weight_VE.device)
    for h_nE in states:
        top_n2, at_n2 = (h_nE @ weight_VE.T + bias_V).topk(2)
        first_V[at_n2[top_n2[:, 0] > top_n2[:, 1], 0]] = True
    along_V = torch.zeros_like(first_V)
    for directions_VE in (weight_VE, weight_VE - weight_VE.mean(0)):
        along_V |= _along(directions_VE, weight_VE, bias_V)
    along_V &= ~first_V
    found = FirstWords(in_contexts=_numbers(first_V), along_rows=_numbers(along_V))
    rows_VE, bias = weight_VE.cpu().numpy(), bias_V.cpu().numpy()
    end = time.monotonic() + seconds
    for word in _numbers(~first_V & ~along_V):
        first = _by_program(word, rows_VE, bias, end)
        if first is None:
            found.undecided.append(word)
        elif first:
            found.by_program.append(word)
        else:
            found.never.append(word)
    return found


def _along(directions_VE: Tensor, weight_VE: Tensor, bias_V: Tensor) -> Tensor:
    """(V,) whether some s > 0 has s (w_x - w_y) . u_x > b_y - b_x for all y: an interval of s that is not empty."""
    found, V = [], len(weight_VE)
    for x in torch.arange(V, device=weight_VE.device).split(ROWS_AT_ONCE):
        logits_xV = directions_VE[x] @ weight_VE.T
        slope_xV = logits_xV.gather(1, x[:, None]) - logits_xV
        needed_xV = bias_V - bias_V[x, None]
        itself = x[:, None] == torch.arange(V, device=x.device)
        ratio_xV = needed_xV / slope_xV
        above_x = torch.where((slope_xV > 0) & ~itself, ratio_xV, 0.0).amax(1)
        below_x = torch.where((slope_xV < 0) & ~itself, ratio_xV, torch.inf).amin(1)
        flat = (slope_xV == 0) & (needed_xV >= 0) & ~itself
        found.append((above_x * (1 + MARGIN) < below_x * (1 - MARGIN)) & ~flat.any(1))
    return torch.cat(found)


def _by_program(word: int, weight_VE: np.ndarray, bias_V: np.ndarray, end: float) -> bool | None:
    """Whether a state puts the word first; None if this could not be shown, or not before `end` of the monotonic clock.

    With a_y = (w_x - w_y, b_x - b_y), divided by its norm, it maximises min_y a_y . (h, s) over |h_i| <= 1 and
    0 <= s <= 1. The maximum is above 0 if and only if there is such a state: h / s, or for s = 0 a large multiple of h.
    """
    if time.monotonic() >= end:
        return None
    differences = np.hstack([weight_VE[word] - weight_VE, (bias_V[word] - bias_V)[:, None]])
    differences = np.delete(differences, word, axis=0)
    norms = np.linalg.norm(differences, axis=1)
    if norms.min() == 0:
        return False  # the same row and bias: always a tie
    differences /= norms[:, None]
    E = weight_VE.shape[1]
    point = np.append(weight_VE[word] / (np.abs(weight_VE[word]).max() or 1.0), 0.0)
    active = np.zeros(len(differences), dtype=bool)
    while True:
        distance = differences @ point
        if distance.min() > MARGIN:
            return True
        most = np.argsort(np.where(active, np.inf, distance))[: ADDED if active.any() else 2 * E]
        most = most[~active[most]]
        if not len(most) or (active.any() and distance[most[0]] > distance[active].min() + MARGIN):
            return None  # the program is solved for all words, and its maximum is not clearly above or at 0
        active[most] = True
        solved = linprog(
            np.append(np.zeros(E + 1), -1.0),
            A_ub=np.hstack([-differences[active], np.ones((active.sum(), 1))]),
            b_ub=np.zeros(active.sum()),
            bounds=[(-1, 1)] * E + [(0, 1), (None, None)],
            method="highs",
            options={"time_limit": max(0.0, min(SECONDS, end - time.monotonic()))},
        )
        if solved.status != 0:
            return None
        if -solved.fun <= MARGIN:
            return False if _proves(-solved.ineqlin.marginals, differences[active]) else None
        point = solved.x[:-1]


def _proves(multipliers: np.ndarray, differences: np.ndarray) -> bool:
    """Whether sum l_y (w_x - w_y) = 0 and sum l_y (b_x - b_y) <= 0, for l_y >= 0 that are not all 0."""
    multipliers = np.clip(multipliers, 0, None)
    if not multipliers.sum():
        return False
    left = multipliers @ differences / multipliers.sum()
    return bool(np.abs(left[:-1]).max() <= MARGIN and left[-1] <= MARGIN)


def _numbers(mask_V: Tensor) -> list[int]:
    return mask_V.nonzero()[:, 0].tolist()
