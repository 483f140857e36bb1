"""The spectrum of a head's log-probability matrix: its singular values and ranks, raw and centred.

Letters: see harness/protocols.py; N contexts.
"""

from collections.abc import Callable, Iterator
from typing import Annotated

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from harness.diagnostics import singular_values
from harness.diagnostics.diagnostic import Amount, Count, Curves, Diagnostic, Figure, NotDefined, Result, Settings
from harness.diagnostics.positions import AT_PLACES, Contexts, contexts
from harness.diagnostics.singular_values import MOST_BY_GRAM, Values, Way, press_rank, press_tolerance
from harness.distributions import LOGIT_MAPS, Mixture
from harness.trial.trained import Trained

EPSILONS = {"1e-3": 1e-3, "1e-4": 1e-4, "1e-5": 1e-5}  # by their names in tables


class Spectrum(Result):
    """The singular values of one matrix.

    Args:
        values: largest first. Those that are not listed are at most `limit` times the largest.
        press_is_exact: False: values that are not listed may be above the tolerance, so the rank is at least `press`.
            It is exact where it is equal to the bound. Of the raw matrix it may count more values than are listed:
            those that the centred matrix proves.
        effective: the effective ranks at 1e-3, 1e-4 and 1e-5.
    """

    model_config = ConfigDict(extra="ignore")  # results of earlier code say that their effective ranks are exact

    values: Annotated[tuple[Amount, ...], Field(min_length=1)]
    limit: Amount
    press: Count
    press_is_exact: bool
    effective: tuple[Count, Count, Count]
    entropy: Amount


class Spectra(Result):
    """The result of the diagnostic.

    Args:
        contexts, vocabulary: N and V.
        bound: the rank of the raw matrix is at most this; None if the head has no bound below N and V. The bound of the
            centred one is less by 1.
        way: how the values were computed, see harness/diagnostics/singular_values.py.
    """

    contexts: Count
    vocabulary: Count
    bound: Count | None
    way: Way
    raw: Spectrum
    centred: Spectrum


def compute(subject: Trained, settings: Settings) -> Spectra:
    """Compute the spectra of a trained model. A larger matrix than a Gram matrix allows has fewer contexts. Raises as
    `of_contexts`.
    """
    V = subject.corpus.vocab_size
    number = settings.contexts if V <= MOST_BY_GRAM else min(settings.contexts, MOST_BY_GRAM)
    return of_contexts(contexts(subject, number), V, seed=settings.seed)


def of_contexts(found: Contexts, V: int, *, seed: int) -> Spectra:
    """Compute the singular values of A[n, x] = log p(x | context n), and of A less the mean of each row, in float64.
    Raises NotDefined when a probability is 0, so that its logarithm is not finite.
    """
    N = len(found)
    bound = rank_bound(found)
    bound = None if bound is None or bound >= min(N, V) else bound

    def rows() -> Iterator[Tensor]:
        for logp_NV in found.log_probs():
            if not logp_NV.isfinite().all():
                raise NotDefined(
                    f"{found.model.head_name} gives a word probability 0, so the matrix of log-probabilities is not "
                    "finite and has no singular values"
                )
            yield logp_NV

    with torch.no_grad():
        raw, centred, way = singular_values.spectra(rows, N, V, rank_bound=bound, seed=seed)
    return Spectra(
        contexts=N,
        vocabulary=V,
        bound=bound,
        way=way,
        raw=_summary(raw, N, V, bound, proved=_proved(raw, centred, N, V)),
        centred=_summary(centred, N, V, bound and bound - 1),
    )


def rank_bound(found: Contexts) -> int | None:
    """The largest rank that the log-probabilities of these contexts can have; None if none is known.

    For one softmax without a logit map, log p = F W^T + 1 b^T - c 1^T, with F (N, P E) the facets of the contexts and
    c the log-normalisers. So the rank is at most that of [F, 1] plus one (without b: that of F plus one). With facets
    of full rank this is d + 1, with a bias d + 2, and min(P d + 1, D + 2) for P facets that are affine maps of a state
    of width D. The rank of [F, 1] is its Press rank on these contexts.
    """
    facets: list[Tensor] = []
    for distribution, part in found.distributions():
        is_softmax = isinstance(distribution, Mixture) and len(distribution.partitions) == 1
        is_plain = is_softmax and distribution.logit_map is LOGIT_MAPS["identity"] and distribution.log_epsilon is None
        if not is_plain:
            return None
        facets_NG = distribution.facets_NFE.flatten(1)[part.chosen.flatten()]
        if distribution.bias_V is not None:
            facets_NG = torch.cat([facets_NG, torch.ones_like(facets_NG[:, :1])], dim=1)
        facets.append(facets_NG)
    facets_NG = torch.cat(facets)
    return press_rank(torch.linalg.svdvals(facets_NG), *facets_NG.shape) + 1


def _summary(found: Values, N: int, V: int, bound: int | None, *, proved: int = 0) -> Spectrum:
    """The values and their ranks. `proved`: a Press rank that the matrix has at least."""
    values = found.found.cpu()
    all_resolved = found.limit <= press_tolerance(N, V)
    press = press_rank(values, N, V)
    if not all_resolved:
        press = max(press, proved)
    return Spectrum(
        values=tuple(values.tolist()),
        limit=found.limit,
        press=press,
        press_is_exact=press == bound or all_resolved,
        effective=tuple(singular_values.effective_rank(values, epsilon) for epsilon in EPSILONS.values()),
        entropy=singular_values.entropy_rank(values),
    )


def _proved(raw: Values, centred: Values, N: int, V: int) -> int:
    """The Press rank that the raw matrix A has at least: the number of s_i(A_c) above its tolerance.

    A_c = A (I - 1 1^T / V), and a projection enlarges no singular value: s_i(A) >= s_i(A_c) for each i. The centred
    matrix resolves smaller values, because its largest is smaller.
    """
    return int((centred.found > press_tolerance(N, V) * raw.found[0]).sum())


def _figures(prefix: str, part: Callable[[Spectra], Spectrum]) -> tuple[Figure, ...]:
    def rank(place: int, share: str) -> Figure:
        effective = {"name": f"{prefix}rank {share}", "value": lambda each: part(each).effective[place]}
        return Figure(**effective, on_terminal=share == "1e-5")

    press = {"value": lambda each: part(each).press, "at_least": lambda each: not part(each).press_is_exact}
    return (
        Figure(name=f"{prefix}Press rank", **press, on_terminal=not prefix),
        *(rank(place, share) for place, share in enumerate(EPSILONS)),
        Figure(name=f"{prefix}entropy rank", value=lambda each: part(each).entropy, digits=1),
    )


def _curves(name: str, title: str, part: Callable[[Spectra], Spectrum]) -> Curves:
    """The values above rounding errors, as shares of the largest."""

    def points(each: Spectra) -> list[float]:
        of = part(each)
        return [value / of.values[0] for value in of.values[: of.press]]

    return Curves(name=name, title=title, x="number of the singular value", y="share of the largest", points=points)


DIAGNOSTIC = Diagnostic(
    name="spectrum",
    title="Spectrum of the log-probability matrix",
    module=__name__,
    settings=("contexts", "seed"),
    result=Spectra,
    compute=compute,
    figures=(
        Figure(name="bound", value=lambda each: each.bound, on_terminal=True),
        *_figures("", lambda each: each.raw),
        *_figures("centred: ", lambda each: each.centred),
    ),
    contexts=AT_PLACES,
    notes=(
        "bound: the largest rank that the head can have on these contexts; - where it has no bound below the size of "
        "the matrix. rank 1e-3: the smallest number of singular values with 99.9 % of the sum of squares. centred: "
        "less the mean over words of each context, which removes the normaliser. ≥: smaller singular values are below "
        f"the precision of the computation. With more than {MOST_BY_GRAM:,} words, at most as many contexts are used.",
        "Rank and quality correlate weakly. Parthiban et al. (2021) print for Penn Treebank (rank; test ppl): softmax "
        "402; 57.08, SigSoftmax 5,113; 57.05, GSS 8,904; 57.00, LMS-PLIF 496; 56.80, MoS-15 9,981; 54.91. Less dropout "
        "raised the rank of MoS-15 from 9,979 to 9,992 and its perplexity from 56.07 to 64.82.",
    ),
    plots=(
        _curves("spectrum", "Singular values of the log-probabilities", lambda each: each.raw),
        _curves("spectrum_centred", "Singular values, centred", lambda each: each.centred),
    ),
)
