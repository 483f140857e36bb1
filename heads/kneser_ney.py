"""Interpolated modified Kneser-Ney n-grams (Chen and Goodman, 1999), with or without a unigram cache."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.protocols import NO_TOKEN, HeadDims, Hidden
from harness.registry import HEADS

WINDOWS = (50, 100, 200, 500, 1000, 2000)  # of the cache, in tokens: those that are tried
MOST_HELD_OUT = 2**18  # tokens of the training text that window and weight are chosen by
CHUNK = 2**22  # comparisons of a token with the tokens before it that are in memory at the same time


class Counted(NamedTuple):
    """The n-grams of one order k. A context and an n-gram have numbers: their ranks among sorted keys.

    key of a context (x_1 .. x_{k-1}) = number of (x_2 .. x_{k-1}) * (V + 1) + x_1
    key of an n-gram (context, w)     = number of the context * V + w

    Shapes: C contexts, G n-grams.
    Args:
        contexts: (C,) int64, the sorted keys of the contexts.
        begin: (C + 1,) the n-grams of context c are begin[c] .. begin[c + 1] - 1.
        grams: (G,) int64, the sorted keys of the n-grams.
        share: (G,) float64, (a - D(a)) / (the context's sum of a).
        left: (C,) float64, gamma, the sum of D(a) over the context's n-grams / (its sum of a).
    """

    contexts: Tensor
    begin: Tensor
    grams: Tensor
    share: Tensor
    left: Tensor


@HEADS.register("kneser_ney", listed=False)
class KneserNey(nn.Module):
    """An n-gram model: interpolated, with the modified smoothing of Kneser and Ney.

    p_k(w | c) = max(a(c w) - D_k(a(c w)), 0) / sum_v a(c v) + gamma(c) p_{k-1}(w | c without its first token)
    gamma(c)   = sum_v D_k(a(c v)) / sum_v a(c v);    p_0(w) = 1 / V;    p_k = p_{k-1} for a context that was not seen
    a(c w)     = at the highest order how often c w occurs; at a lower order the number of different tokens before c w
    D_k(0) = 0,  D_k(1) = 1 - 2 Y n_2/n_1,  D_k(2) = 2 - 3 Y n_3/n_2,  D_k(3 or more) = 3 - 4 Y n_4/n_3
    Y = n_1 / (n_1 + 2 n_2), with n_i the number of n-grams of order k with a = i
    cache:       p(w) = (1 - l) p_order(w | c) + l (occurrences of w in the last W tokens) / W

    A line is a sentence: all tokens up to the end of the line before count as one <eos>, repeated. If tokens are not
    the words of lines, the context goes on. The cache reads the last W tokens of the text that is scored, of all lines
    and with <eos>; at its start there are fewer, and their number stands for W. W is one of WINDOWS, at most L, and l a
    number in (0, 1): those with the lowest perplexity of the last tenth of the training text, by n-grams of the text
    before it. Then n-grams of the whole training text are counted.
    The state dict has the training text: an n-gram model is its text. The tables are computed again when it is loaded.

    Shapes: layer (B, T, L) of the backbone last_tokens -> probabilities float64.
    Args:
        order: the order n of the n-grams, which is 1 more than the tokens of context.
        cache: interpolate with a unigram cache.
    Raises: ValueError when order < 1 or the context is longer than L; for another backbone; for a training text
        of which a discount D_k(i) is not defined or not in [0, i], as of a small text.
    Source: Chen and Goodman (1999), An empirical study of smoothing techniques for language modeling, the modified form
        of Kneser and Ney (1995) with three discounts; the cache: Kuhn and De Mori (1990). Both from memory, NOT
        CONFIRMED in the papers, but by the printed perplexity of Penn Treebank.
    Differs: no n-gram is left out. At a lower order an n-gram at the start of a line has a = 1, because only <eos>
        stands before it. With its number of occurrences instead, and one <eos> before a line, as other programs have
        it, order 5 has 141.19 on Penn Treebank instead of 141.17.
    """

    def __init__(self, dims: HeadDims, embedding: nn.Embedding, *, order: int = 5, cache: bool = False):
        super().__init__()
        if embedding.embedding_dim:
            raise ValueError("kneser_ney reads token ids and no hidden states: name it below `ngrams` in a suite")
        if not 1 <= order <= dims.layer_dims[-1]:
            raise ValueError(f"order must be 1 to {dims.layer_dims[-1]}, got {order}")
        self.vocab_size, self.order, self.cache = dims.vocab_size, order, cache
        self.windows = [window for window in WINDOWS if window <= dims.layer_dims[-1]]
        if cache and not self.windows:
            raise ValueError(f"a cache needs {WINDOWS[0]} tokens, the backbone has the last {dims.layer_dims[-1]} only")
        self.register_buffer("text", torch.zeros(0, dtype=torch.int32))
        self.register_buffer("line_end", torch.tensor(NO_TOKEN))
        self.register_buffer("cache_window", torch.tensor(0))
        self.register_buffer("cache_weight", torch.tensor(0.0, dtype=torch.float64))
        self._orders: tuple[Counted, ...] | None = None

    @classmethod
    def label(cls, p) -> str:
        return f"Kneser-Ney {p.order}" + (", cache" if p.cache else "")

    @property
    def orders(self) -> tuple[Counted, ...]:
        """The tables of orders 1 .. n. Raises ValueError when no text was counted."""
        if self._orders is None:
            if not len(self.text):
                raise ValueError("kneser_ney has not counted a text")
            self._orders = counted(self.text.long(), self.order, self.vocab_size, int(self.line_end))
        return self._orders

    def count(self, train_N: Tensor, line_end: int | None) -> dict[str, float]:
        """See harness.protocols.CountsText."""
        if not len(train_N):
            raise ValueError("the training split is empty, and n-grams are counted there")
        self.text = train_N.to(self.text.device, torch.int32)
        self.line_end.fill_(NO_TOKEN if line_end is None else line_end)
        self._orders = None
        found = {"stored_ngrams": sum(len(order.grams) for order in self.orders)}
        if self.cache:
            window, weight = self._chosen(*_last_held_out(self.text.long(), line_end))
            self.cache_window.fill_(window)
            self.cache_weight.fill_(weight)
            found |= {"cache_window": window, "cache_weight": weight}
        return found

    def forward(self, hidden: Hidden) -> "NgramDistribution":
        """Map the last tokens of every position to the distribution of the next one."""
        return NgramDistribution(self, hidden.layers[-1])

    def context(self, last_PL: Tensor) -> Tensor:
        """(P, L) last tokens -> (P, order - 1), the context within the line; V stands for no token."""
        return _within_line(last_PL[:, last_PL.shape[1] - self.order + 1 :], int(self.line_end), self.vocab_size)

    def _chosen(self, counted_N: Tensor, scored_N: Tensor) -> tuple[int, float]:
        """The window and the weight of the cache with the lowest perplexity of a text, by n-grams of another."""
        from scipy.optimize import minimize_scalar  # here: it takes as long to import as all heads together

        orders = counted(counted_N, self.order, self.vocab_size, int(self.line_end))
        longest = self.windows[-1]
        last_NL, target_N = _before(scored_N, longest)[1:], scored_N[1:]
        ngram, cached = [], []
        for last_PL, target_P in zip(last_NL.split(CHUNK // longest), target_N.split(CHUNK // longest), strict=True):
            ngram.append(probability(orders, self.context(last_PL), target_P, self.vocab_size))
            cached.append(torch.stack([cache_probability(last_PL[:, -each:], target_P) for each in self.windows]))
        ngram_N, cached_WN = torch.cat(ngram).cpu().numpy(), torch.cat(cached, dim=1).cpu().numpy()
        best = [
            minimize_scalar(
                lambda weight, c_N=c_N: -np.log((1 - weight) * ngram_N + weight * c_N).mean(),
                bounds=(0, 1),
                method="bounded",
            )
            for c_N in cached_WN
        ]
        chosen = min(range(len(best)), key=lambda index: best[index].fun)
        return self.windows[chosen], float(best[chosen].x)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest) -> None:
        """Accept a text of any length. The tables are those of the text."""
        if (text := state_dict.get(f"{prefix}text")) is not None:
            self.text = self.text.new_empty(text.shape)
        self._orders = None
        super()._load_from_state_dict(state_dict, prefix, *rest)


class NgramDistribution:
    """The distribution of the next token after the last tokens of each position (see KneserNey).

    Shapes: last (B, T, L) ids, NO_TOKEN before the start of the text.
    """

    aux_loss = 0.0

    def __init__(self, head: KneserNey, last_BTL: Tensor):
        self.head, self.shape, self.orders = head, last_BTL.shape[:2], head.orders
        self.last_PL = last_BTL.flatten(0, 1)
        self.context_PC = head.context(self.last_PL)
        self.recent_PW = self.last_PL[:, -int(head.cache_window) :] if head.cache else None

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() the mean nll. It has no gradient: nothing is learned by steps."""
        return self.mean_nll(targets_BT, weight_BT)

    def mean_nll(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() the mean nll in nats, of weighted targets."""
        nll_BT = self.nll(targets_BT)
        return nll_BT.mean() if weight_BT is None else (nll_BT * weight_BT).sum() / weight_BT.sum()

    def nll(self, targets_BT: Tensor) -> Tensor:
        """(B, T) nats, float64."""
        target_P = targets_BT.flatten()
        p_P = probability(self.orders, self.context_PC, target_P, self.head.vocab_size)
        if self.recent_PW is not None:
            p_P = torch.lerp(p_P, cache_probability(self.recent_PW, target_P), self.head.cache_weight)
        return -p_P.log().view(self.shape)

    def log_probs(self) -> Tensor:
        """(B, T, V) nats, float64."""
        p_PV = distribution(self.orders, self.context_PC, self.head.vocab_size)
        if self.recent_PW is not None:
            p_PV = torch.lerp(p_PV, cache_distribution(self.recent_PW, p_PV.shape), self.head.cache_weight)
        return p_PV.log().view(*self.shape, -1)


def counted(text_N: Tensor, order: int, vocab_size: int, line_end: int) -> tuple[Counted, ...]:
    """The tables of all orders up to the highest one. Raises ValueError as KneserNey does."""
    before_NC = _within_line(_before(text_N, order - 1), line_end, vocab_size)
    number_N = torch.zeros_like(text_N)  # of each token's context
    keys = [number_N.new_zeros(1)]  # of the contexts of order 1: the empty one
    for back in range(1, order):
        key_C, number_N = torch.unique(number_N * (vocab_size + 1) + before_NC[:, -back], return_inverse=True)
        keys.append(key_C)
    grams_G, a_G = torch.unique(number_N * vocab_size + text_N, return_counts=True)
    found = []
    for k in range(order, 0, -1):
        found.append(_discounted(k, keys[k - 1], grams_G, a_G, vocab_size))
        shorter_C = keys[k - 1] // (vocab_size + 1)
        shorter_G = shorter_C[grams_G // vocab_size] * vocab_size + grams_G % vocab_size
        grams_G, a_G = torch.unique(shorter_G, return_counts=True)
    return tuple(reversed(found))


def discounts(a_G: Tensor) -> Tensor:
    """(4,) float64: D(0) .. D(2), and D(3) of 3 and more. Raises ValueError when one is not in its range."""
    n = [0, *(int((a_G == i).sum()) for i in range(1, 5))]
    if not all(n[1:4]):
        raise ValueError(f"{n[1]:,}, {n[2]:,} and {n[3]:,} n-grams have the counts 1, 2 and 3")
    y = n[1] / (n[1] + 2 * n[2])
    found = [0.0, *(i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3))]
    if any(not 0 <= discount <= i for i, discount in enumerate(found)):
        shown = ", ".join(f"{discount:.4g}" for discount in found[1:])
        raise ValueError(f"those of the counts 1, 2 and 3 would be {shown}, expected 0 to the count")
    return torch.tensor(found, dtype=torch.float64, device=a_G.device)


def probability(orders: tuple[Counted, ...], context_PC: Tensor, target_P: Tensor, vocab_size: int) -> Tensor:
    """(P,) float64, the probability of one token in each context."""
    p_P = torch.full(target_P.shape, 1 / vocab_size, dtype=torch.float64, device=target_P.device)
    for order, number_P, known_P in _places(orders, context_PC, vocab_size):
        gram_P, seen_P = _found(order.grams, number_P * vocab_size + target_P, known_P)
        share_P = torch.where(seen_P, order.share[gram_P], 0.0)
        p_P = torch.where(known_P, share_P + order.left[number_P] * p_P, p_P)
    return p_P


def distribution(orders: tuple[Counted, ...], context_PC: Tensor, vocab_size: int) -> Tensor:
    """(P, V) float64, the probability of every token in each context."""
    shape, device = (len(context_PC), vocab_size), context_PC.device
    p_PV = torch.full(shape, 1 / vocab_size, dtype=torch.float64, device=device)
    for order, number_P, known_P in _places(orders, context_PC, vocab_size):
        p_PV *= torch.where(known_P, order.left[number_P], 1.0)[:, None]
        first_P = order.begin[number_P]
        length_P = torch.where(known_P, order.begin[number_P + 1] - first_P, 0)
        row_G = torch.arange(len(context_PC), device=device).repeat_interleave(length_P)
        within_G = torch.arange(len(row_G), device=device) - (length_P.cumsum(0) - length_P)[row_G]
        gram_G = first_P[row_G] + within_G
        p_PV[row_G, order.grams[gram_G] % vocab_size] += order.share[gram_G]
    return p_PV


def cache_probability(recent_PW: Tensor, target_P: Tensor) -> Tensor:
    """(P,) float64, the share of a token among the recent ones."""
    return (recent_PW == target_P[:, None]).sum(1) / (recent_PW != NO_TOKEN).sum(1).double()


def cache_distribution(recent_PW: Tensor, shape: torch.Size) -> Tensor:
    """(P, V) float64, the share of every token among the recent ones."""
    is_token_PW = recent_PW != NO_TOKEN
    counts_PV = torch.zeros(shape, dtype=torch.int64, device=recent_PW.device)
    counts_PV.scatter_add_(1, recent_PW.clamp(min=0), is_token_PW.long())
    return counts_PV / is_token_PW.sum(1, keepdim=True).double()


def _places(orders: tuple[Counted, ...], context_PC: Tensor, vocab_size: int):
    """Yield each order with (P,) the numbers of the contexts, and (P,) whether they were seen in the text."""
    number_P = torch.zeros(len(context_PC), dtype=torch.int64, device=context_PC.device)
    known_P = torch.ones_like(number_P, dtype=torch.bool)
    for k, order in enumerate(orders):
        if k:
            number_P, known_P = _found(order.contexts, number_P * (vocab_size + 1) + context_PC[:, -k], known_P)
        yield order, number_P, known_P


def _found(sorted_K: Tensor, wanted_P: Tensor, known_P: Tensor) -> tuple[Tensor, Tensor]:
    """The ranks of keys among sorted ones, and whether they are there. Keys that are not `known` are not there."""
    rank_P = torch.searchsorted(sorted_K, wanted_P).clamp(max=len(sorted_K) - 1)
    return rank_P, known_P & (sorted_K[rank_P] == wanted_P)


def _discounted(k: int, contexts_C: Tensor, grams_G: Tensor, a_G: Tensor, vocab_size: int) -> Counted:
    try:
        discount = discounts(a_G)
    except ValueError as error:
        reason = f"the discounts of order {k} cannot be estimated from this training text: {error}"
        raise ValueError(f"{reason}; use more text or a lower order, and words instead of characters") from error
    starts = torch.arange(len(contexts_C) + 1, device=grams_G.device) * vocab_size
    begin = torch.searchsorted(grams_G, starts)

    def sums(values_G: Tensor) -> Tensor:
        return functional.pad(values_G.cumsum(0), (1, 0))[begin].diff()

    total_C, level_G = sums(a_G).double(), a_G.clamp(max=3)
    removed_C = sum(discount[i] * sums((level_G == i).long()) for i in (1, 2, 3))
    share_G = (a_G - discount[level_G]) / total_C[grams_G // vocab_size]
    return Counted(contexts_C, begin, grams_G, share_G, removed_C / total_C)


def _last_held_out(text_N: Tensor, line_end: int | None) -> tuple[Tensor, Tensor]:
    """A text without its last tenth, and that tenth: about MOST_HELD_OUT tokens at most. It begins with a line if one
    begins near.
    """
    length = min(max(len(text_N) // 10, 2), MOST_HELD_OUT)  # the first token is not scored
    cut = max(len(text_N) - length, 0)
    if line_end is not None:
        ends = (text_N[:cut] == line_end).nonzero()
        begin = int(ends[-1]) + 1 if len(ends) else 0
        cut = begin if begin and cut - begin <= length else cut  # a very long line is cut within
    return text_N[:cut], text_N[cut:]


def _before(text_N: Tensor, length: int) -> Tensor:
    """(N, length) the tokens before each token of a text, as a view."""
    return functional.pad(text_N[:-1], (length, 0), value=NO_TOKEN).unfold(0, length, 1)


def _within_line(last_PC: Tensor, line_end: int, vocab_size: int) -> Tensor:
    """Replace all tokens up to the last line end, and those before the text, by the line end; V if there is none."""
    if line_end == NO_TOKEN:
        return torch.where(last_PC == NO_TOKEN, vocab_size, last_PC)
    outside_PC = (last_PC == line_end) | (last_PC == NO_TOKEN)
    return torch.where(outside_PC.flip(1).cumsum(1).flip(1) > 0, line_end, last_PC)
