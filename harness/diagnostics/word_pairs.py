"""Next words with two modes: does a trained model expect both words that a prompt has named?

Letters: see harness/protocols.py; n prompts.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from harness.diagnostics.diagnostic import Amount, Count, Diagnostic, Figure, NotDefined, Result, Settings
from harness.diagnostics.generation import Decoder
from harness.diagnostics.positions import BLOCK_BYTES
from harness.diagnostics.prompts import Prompt, prompts_of
from harness.trial.trained import Trained

TOP = (2, 10, 100)  # how many most probable words
ROWS = 256  # prompts of one call at most
Share = Annotated[float, Field(ge=0, le=1)]


class Modes(Result):
    """What a model predicts after some prompts: means over the prompts.

    Args:
        prompts: n.
        first, second: the probability of the word that is named first, and of the other one.
        both: the sum of the two.
        kl: KL(ideal || p) in nats, with 1/2 for each of the two words as the ideal.
        kl_of_two: the same with the probabilities of the two divided by their sum.
        top: the shares of the prompts in which both are among the 2, 10 and 100 most probable words.
        above: the share in which both are more probable than both other words of the parallelogram; None for controls.
    """

    prompts: Count
    first: Share
    second: Share
    both: Share
    kl: Amount
    kl_of_two: Amount
    top: tuple[Share, Share, Share]
    above: Share | None


class WordPairs(Result):
    """The result of the diagnostic.

    Args:
        crossed, control: see harness/diagnostics/prompts.py; None where the vocabulary has no such prompt.
    """

    crossed: Modes | None
    control: Modes | None
    templates_left_out: Count
    pairs_left_out: Count


def compute(subject: Trained, settings: Settings) -> WordPairs:
    """Compute what follows prompts with two right next words, in float64. Nothing is trained.

    With p_1 and p_2 the probabilities of the two words, and 1/2 for each as the ideal,

        KL(ideal || p) = -(log p_1 + log p_2) / 2 - log 2 = -log(p_1 + p_2) + KL(ideal || (p_1, p_2) / (p_1 + p_2))

    The mean of -(log p_1 + log p_2) / 2 is the loss that the authors report: that of both continuations.

    A backbone that carries a state starts with none. For any other, a prompt may have seq_len tokens.

    Raises: NotDefined when the vocabulary can express no prompt, or when a probability is 0.
    Source: Chang and McCallum's multi-facet softmax, and a third party's copy of its code
        (laksh-ag/Multi-facet_softmax, src/preprocessing/analogy), of which we have read the making of the data.
    Differs: the authors train a model further on a half or a tenth of the pairs, with a frozen output matrix, before
        they test it on others. See docs/diagnostics.md.
    """
    model = subject.wide
    with torch.no_grad():
        carries = model.backbone(torch.zeros(1, 1, dtype=torch.int64, device=subject.device)).state is not None
    found = prompts_of(subject.corpus, None if carries else subject.spec.train.seq_len)
    if not found.prompts:
        raise NotDefined(
            f"the vocabulary of {subject.spec.corpus} can express no template with two of its words, or none that has "
            "at most seq_len tokens"
        )
    return WordPairs(
        crossed=_modes(subject, [each for each in found.prompts if each.others]),
        control=_modes(subject, [each for each in found.prompts if not each.others]),
        templates_left_out=found.templates_left_out,
        pairs_left_out=found.pairs_left_out,
    )


def _modes(subject: Trained, prompts: Sequence[Prompt]) -> Modes | None:
    """The means over some prompts, which are all crossed or all controls; None without a prompt."""
    if not prompts:
        return None
    by_length: dict[int, list[Prompt]] = {}
    for each in prompts:
        by_length.setdefault(len(each.tokens), []).append(each)
    most_rows = max(1, min(ROWS, BLOCK_BYTES // (8 * subject.corpus.vocab_size)))
    parts = []
    for length, alike in by_length.items():
        for start in range(0, len(alike), most_rows):
            some = alike[start : start + most_rows]
            tokens_nT = torch.tensor([each.tokens for each in some], device=subject.device)
            parts.append(_measured(Decoder(subject.wide, length)(tokens_nT).double().cpu(), some))
    first, second, kl, kl_of_two, *shares = torch.cat(parts, dim=1).mean(1).tolist()
    return Modes(
        prompts=len(prompts),
        first=first,
        second=second,
        both=min(1.0, first + second),
        kl=max(0.0, kl),
        kl_of_two=max(0.0, kl_of_two),
        top=tuple(shares[: len(TOP)]),
        above=next(iter(shares[len(TOP) :]), None),
    )


def _measured(logp_nV: Tensor, prompts: Sequence[Prompt]) -> Tensor:
    """(7 or 8, n) p of both words, KL, KL of the two, whether both are in each top, whether both are above the others.

    Raises: NotDefined when a word of a pair has the probability 0.
    """
    logp_n2 = logp_nV.gather(1, torch.tensor([(each.first, each.second) for each in prompts]))
    if not logp_n2.isfinite().all():
        raise NotDefined("a word of a pair has the probability 0, so the divergence is not finite")
    least_n = logp_n2.min(1).values
    kl_n = -logp_n2.mean(1) - math.log(2)
    before_n = (logp_nV > least_n[:, None]).sum(1)
    rows = [*logp_n2.exp().T, kl_n, kl_n + logp_n2.logsumexp(1), *((before_n < top).double() for top in TOP)]
    if prompts[0].others:
        others_n2 = logp_nV.gather(1, torch.tensor([each.others for each in prompts]))
        rows.append((least_n > others_n2.max(1).values).double())
    return torch.stack(rows)


def _figures(prefix: str, part: Callable[[WordPairs], Modes | None]) -> tuple[Figure, ...]:
    figures = (
        ("prompts", lambda each: each.prompts, 0, False),
        ("p of the first (%)", lambda each: 100 * each.first, 3, False),
        ("p of the second (%)", lambda each: 100 * each.second, 3, False),
        ("p of both (%)", lambda each: 100 * each.both, 3, not prefix),
        ("KL", lambda each: each.kl, 3, True),
        ("KL of the two", lambda each: each.kl_of_two, 3, True),
        *(
            (f"both in the top {top} (%)", lambda each, place=place: 100 * each.top[place], 1, False)
            for place, top in enumerate(TOP)
        ),
    )

    def value(of: Callable[[Modes], float]) -> Callable[[WordPairs], float | None]:
        return lambda each: None if part(each) is None else of(part(each))

    return tuple(
        Figure(name=prefix + name, value=value(of), digits=digits, on_terminal=shown)
        for name, of, digits, shown in figures
    )


def _above(each: WordPairs) -> float | None:
    return None if each.crossed is None or each.crossed.above is None else 100 * each.crossed.above


DIAGNOSTIC = Diagnostic(
    name="word_pairs",
    title="Prompts with two right next words",
    module=__name__,
    settings=(),
    result=WordPairs,
    compute=compute,
    figures=(
        *_figures("", lambda each: each.crossed),
        Figure(name="both above the others (%)", value=_above, digits=1, on_terminal=True),
        *_figures("control: ", lambda each: each.control),
        Figure(name="templates left out", value=lambda each: each.templates_left_out),
        Figure(name="pairs left out", value=lambda each: each.pairs_left_out),
    ),
    notes=(
        "After a prompt such as 'The king and the woman came to the house and we spoke to the', both words are right: "
        "ideal is 1/2 for each. KL: the divergence of the ideal from the prediction, in nats; of the two: with the "
        "probabilities of the two words divided by their sum. The pairs are crossed: man and queen, woman and king; "
        "above the others: both words are more probable than both others of the four. control: man and woman, man and "
        "king, woman and queen.",
        "Left out: what the vocabulary cannot express. The weights of the best epoch, in float64; nothing is trained, "
        "unlike in the code of the multi-facet softmax, which trains on such prompts first.",
    ),
)
