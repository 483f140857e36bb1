"""Words that a trained softmax can never put first, whatever the hidden state is.

Letters: see harness/protocols.py.
"""

import torch

from harness.diagnostics import first_words
from harness.diagnostics.diagnostic import Count, Diagnostic, Figure, NotDefined, Result, Settings, Subject
from harness.diagnostics.positions import Contexts, contexts, mixture_at
from harness.distributions import Mixture

SHOWN = 100  # words that are kept by name


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


def compute(subject: Subject, settings: Settings) -> Unargmaxable:
    """Decide for every word whether some facet f gives it a larger logit f . w_x + b_x than all others, in float64.

    The logit map of a head is increasing, so the order of the logits is that of the probabilities. f is any vector of
    the width of the output matrix. Where a head or a backbone cannot make all of these (a tanh limits its facets to
    [-1, 1]), more words than `never` may be out of reach.

    Raises: NotDefined for a head of several softmaxes or facets, and for one without an output matrix.
    Source: see harness/diagnostics/first_words.py.
    """
    chosen = contexts(subject, settings.contexts)
    one = _one_softmax(subject, chosen)
    bias_V = one.weight_VE.new_zeros(len(one.weight_VE)) if one.bias_V is None else one.bias_V
    states = (
        mixture_at(distribution, part.chosen.flatten().nonzero()[:, 0]).facets_NFE[:, 0]
        for distribution, part in chosen.distributions()
        if isinstance(distribution, Mixture)
    )
    found = first_words.decide(one.weight_VE.detach(), bias_V.detach(), states)
    counts_V = subject.corpus.token_counts
    frequent = sorted(found.never, key=lambda word: (-int(counts_V[word]), word))
    return Unargmaxable(
        vocabulary=len(bias_V),
        in_contexts=len(found.in_contexts),
        along_rows=len(found.along_rows),
        by_program=len(found.by_program),
        never=len(found.never),
        undecided=len(found.undecided),
        never_in_training=int(counts_V[torch.tensor(found.never, dtype=torch.int64)].sum()),
        words=tuple(_name(subject, word) for word in frequent[:SHOWN]),
    )


@torch.no_grad()
def _one_softmax(subject: Subject, chosen: Contexts) -> Mixture:
    """A distribution of the head. Raises NotDefined unless it is one softmax over one output matrix."""
    distribution, _ = next(chosen.distributions())
    if not isinstance(distribution, Mixture):
        raise NotDefined(f"{subject.model.head_name} has no output matrix by which all its words are scored")
    if distribution.partitions != (1,):
        raise NotDefined(f"{subject.model.head_name} has several softmaxes or facets; this is defined for one")
    return distribution


def _name(subject: Subject, word: int) -> str:
    return str(word) if subject.corpus.symbols is None else subject.corpus.symbols[word]


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
        f"{first_words.SECONDS:.0f} seconds for each linear program, of which a word may need several, and "
        f"{first_words.ALL_SECONDS:,.0f} seconds for all words. Heads of one softmax only.",
    ),
)
