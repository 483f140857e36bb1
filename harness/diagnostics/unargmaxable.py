"""Words that a trained softmax can never put first, whatever the hidden state is.

Letters: see harness/protocols.py; n states.
"""

import time
from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from harness.diagnostics.diagnostic import Count, Diagnostic, Figure, NotDefined, Result, Settings
from harness.diagnostics.positions import contexts
from harness.trial.trained import Trained

Known = Literal["in_contexts", "along_rows", "by_program", "never", "undecided"]  # as in Unargmaxable
SHOWN = 100  # words that are kept by name
ROWS_AT_ONCE = 256  # of the V x V products of rows
MARGIN = 1e-9  # of normalised differences; smaller ones are rounding errors
SECONDS = 60.0  # for one linear program; a word may need several
ALL_SECONDS = 3600.0  # for the linear programs of all words together
ADDED = 64  # constraints in each round


class Unargmaxable(Result):
    """The result of the diagnostic: how many words a state can put first, by where that state was found.

    Args:
        vocabulary: V, the sum of the other numbers.
        in_contexts: the state of a context of the validation split.
        along_rows: a multiple of a row of the output matrix, or of its difference from the mean row.
        by_program: a linear program.
        never: no state puts the word first, proved.
        undecided: neither could be shown, or there was no time left for the word.
        never_in_training: how often the words of `never` occur in the training split, together.
        words: those of `never`, the most frequent first, at most 100; their ids where the corpus has no symbols.
    """

    vocabulary: Count
    in_contexts: Count
    along_rows: Count
    by_program: Count
    never: Count
    undecided: Count
    never_in_training: Count
    words: tuple[str, ...]


def compute(subject: Trained, settings: Settings) -> Unargmaxable:
    """Decide for every word whether some facet f gives it a larger logit f . w_x + b_x than all others, in float64.

    The logit map of a head is increasing, so the order of the logits is that of the probabilities. f is any vector of
    the width of the output matrix. Where a head or a backbone cannot make all of these (a tanh limits its facets to
    [-1, 1]), more words than `never` may be out of reach.

    Raises: NotDefined for a head of several softmaxes or facets, and for one without an output matrix.
    Source: see `decide`.
    """
    chosen = contexts(subject, settings.contexts)
    one, _ = next(chosen.mixtures())
    if one.partitions != (1,):
        raise NotDefined(f"{subject.model.head_name} has several softmaxes or facets; this is defined for one")
    weight_VE = one.weight_VE.detach()
    bias_V = weight_VE.new_zeros(len(weight_VE)) if one.bias_V is None else one.bias_V.detach()
    found = decide(weight_VE, bias_V, (mixture.facets_NFE[:, 0] for mixture, _ in chosen.mixtures()))
    counts_V, symbols = subject.corpus.token_counts, subject.corpus.symbols
    frequent = sorted(found["never"], key=lambda word: (-int(counts_V[word]), word))
    return Unargmaxable(
        vocabulary=len(bias_V),
        **{known: len(words) for known, words in found.items()},
        never_in_training=int(counts_V[torch.tensor(found["never"], dtype=torch.int64)].sum()),
        words=tuple(str(word) if symbols is None else symbols[word] for word in frequent[:SHOWN]),
    )


def decide(
    weight_VE: Tensor, bias_V: Tensor, states: Iterable[Tensor], *, seconds: float = ALL_SECONDS
) -> dict[Known, list[int]]:
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
    Returns: what is known, as in Unargmaxable -> the words of which it is known.
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
    found = {"in_contexts": _numbers(first_V), "along_rows": _numbers(along_V)}
    found |= {"by_program": [], "never": [], "undecided": []}
    rows_VE, bias = weight_VE.cpu().numpy(), bias_V.cpu().numpy()
    end = time.monotonic() + seconds
    for word in _numbers(~first_V & ~along_V):
        first = _by_program(word, rows_VE, bias, end)
        found["undecided" if first is None else "by_program" if first else "never"].append(word)
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


DIAGNOSTIC = Diagnostic(
    name="unargmaxable",
    title="Words that no hidden state can put first",
    module=__name__,
    settings=("contexts",),
    result=Unargmaxable,
    compute=compute,
    figures=(
        Figure(name="V", value=lambda each: each.vocabulary),
        Figure(name="first in a context", value=lambda each: each.in_contexts),
        Figure(name="along a row of W", value=lambda each: each.along_rows),
        Figure(name="by a linear program", value=lambda each: each.by_program),
        Figure(name="never first", value=lambda each: each.never, on_terminal=True),
        Figure(name="undecided", value=lambda each: each.undecided, on_terminal=True),
        Figure(name="training tokens never first", value=lambda each: each.never_in_training),
    ),
    notes=(
        "Numbers of words. never first: there is a mixture of other words' rows of the output matrix that equals the "
        "word's, with at least its bias; so no vector of hidden states gives it the largest logit. The columns before "
        "say where a state was found that does. first in a context: of the contexts that were used, so it grows with "
        "their number, and the next two columns shrink. undecided: neither was shown: beyond rounding errors, within "
        f"{SECONDS:.0f} seconds for each linear program, of which a word may need several, and "
        f"{ALL_SECONDS:,.0f} seconds for all words. Heads of one softmax only.",
    ),
)
