"""Expand corpora, backbones and heads to combinations, and combinations to trials, in the order of the suite file.

Between the two, a combination gets how long it is trained (epochs, a number of tokens, or the time of another head) and
the width at which its number of parameters meets a target. A head with more parameters, or more time, may be better
because of these and not because of its structure. Source: Parthiban et al. (2021), main table 5.
"""

import bisect
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from harness.corpora.corpus import CorpusFacts
from harness.errors import SuiteError, nearest
from harness.plan.components import Component, Construction, count, embedding_width
from harness.plan.identity import trial_id
from harness.plan.parameters import is_width, parameters, resolved
from harness.plan.reader import Place, Source
from harness.plan.schedule import Schedule, StepDecay, Warmup
from harness.plan.specs import (
    COUNTED,
    MAX_EPOCHS,
    NGRAM_BACKBONE,
    NGRAM_HEAD,
    AveragingSpec,
    ComponentSpec,
    TrainSpec,
    TrialSpec,
)
from harness.plan.suite_file import TOLERANCE, MatchSpec, NgramSpec
from harness.plan.tuning import rounded
from harness.registry import BACKBONES, HEADS

DIGITS = 6  # of a scaled factor, and of epochs that stand for a number of tokens
TIME_DIGITS = 2  # of epochs that stand for a time
KINDS = ("corpus", "backbone", "head")
PARAMS, RATIOS = ("match", "params"), ("match", "ratios")
MATCHED = ("backbone", "head", "params", "settled")  # what a combination has of its width
MAX_WIDTH = 2**16
MAX_GAP = 64  # the largest gap between two widths that can be built: the number of attention heads must divide a width


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One corpus, backbone and head. It is trained with every seed.

    Args:
        params: the numbers of parameters (total, head).
        settled: the integers that the head's constructor chose for parameters that are None.
    """

    corpus: Component
    facts: CorpusFacts
    backbone: Component
    head: Component
    params: tuple[int, int]
    settled: dict[str, int]
    train: TrainSpec

    @property
    def model(self) -> tuple[int, str, str]:
        """(V, backbone, head): the parameter counts depend on these only."""
        return self.facts.vocab_size, str(self.backbone.spec), str(self.head.spec)


Texts = list[tuple[Component, CorpusFacts, TrainSpec]]  # corpora, each with how models are trained on it


def combinations(
    texts: Texts, backbones: list[Component], heads: list[Component], construction: Construction
) -> list[Combination]:
    """Return all combinations corpora x backbones x heads, with the parameter counts of `construction`."""
    found = []
    for (corpus, facts, train), backbone, head in itertools.product(texts, backbones, heads):
        params, settled = construction.models[facts.vocab_size, str(backbone.spec), str(head.spec)]
        parts = {"corpus": corpus, "facts": facts, "backbone": backbone, "head": head}
        found.append(Combination(**parts, params=params, settled=settled, train=train))
    return found


def ngram_combinations(ngrams: list[NgramSpec], texts: Texts) -> list[Combination]:
    """Return the combinations of `ngrams`: one for each corpus and model. Their trials have the seed 0."""
    backbone = Component(ComponentSpec(name=NGRAM_BACKBONE), BACKBONES.get(NGRAM_BACKBONE))
    heads = [
        Component(ComponentSpec(name=NGRAM_HEAD, params=each.head_params), HEADS.get(NGRAM_HEAD), place=("ngrams", n))
        for n, each in enumerate(ngrams)
    ]
    none = {"params": (0, 0), "settled": {}, "train": COUNTED}
    return [
        Combination(corpus=corpus, facts=facts, backbone=backbone, head=head, **none)
        for (corpus, facts, _), head in itertools.product(texts, heads)
    ]


def trials(
    combined: list[Combination], seeds: list[int], source: Source
) -> tuple[tuple[TrialSpec, ...], dict[str, Combination]]:
    """Return all trials, combinations x seeds, and by their ids the combination of each.

    Raises: SuiteError when two trials are equal.
    """
    found, origins = [], {}
    for each, seed in itertools.product(combined, seeds):
        parts = {kind: getattr(each, kind) for kind in KINDS}
        specs = {kind: part.spec for kind, part in parts.items()}
        identity = trial_id(**parts, train=each.train, seed=seed)
        trial = TrialSpec(id=identity, **specs, train=each.train, seed=seed)
        if trial.id in origins:
            raise SuiteError([each.head.problem(source, f"the trial '{trial}' is in the suite twice")])
        found.append(trial)
        origins[trial.id] = each
    return tuple(found), origins


def epochs_of(tokens: int, train: TrainSpec, num_tokens: int) -> float:
    """Return the epochs in which so many targets are trained, rounded to DIGITS digits after the point.

    stream: an epoch has B (floor(N / B) - 1) targets, of N tokens in B columns.
    blocks: an epoch has floor(floor(N / T) / B) B (T - 1) targets, of blocks of T tokens, B at a time.
    Raises: ValueError when an epoch has no target.
    """
    if train.batching == "blocks":
        batches = num_tokens // train.seq_len // train.batch_size
        of_epoch = batches * train.batch_size * (train.seq_len - 1)
    else:
        of_epoch = train.batch_size * (num_tokens // train.batch_size - 1)
    if of_epoch < 1:
        sizes = f"batch_size {train.batch_size} and seq_len {train.seq_len}"
        raise ValueError(
            f"{sizes} make no batch of its {num_tokens} training tokens; make them smaller, or give a longer text"
        )
    return round(tokens / of_epoch, DIGITS)


def in_tokens(tokens: int, train: TrainSpec, facts: CorpusFacts) -> TrainSpec:
    """Return the settings with the epochs of a number of tokens.

    Raises: ValueError when they are not known, none, or more than MAX_EPOCHS.
    """
    if facts.num_tokens is None:
        raise ValueError("the number of training tokens of this corpus is known only after it was read; give epochs")
    epochs = epochs_of(tokens, train, facts.num_tokens["train"])
    if not epochs:
        raise ValueError(f"{tokens} tokens are less than a step of this corpus; give more")
    if epochs > MAX_EPOCHS:
        raise ValueError(f"{tokens} tokens are {epochs:g} epochs of this corpus; expected at most {MAX_EPOCHS:,}")
    if train.finetune is not None and not epochs.is_integer():
        raise ValueError(f"{tokens} tokens are {epochs:g} epochs, and finetune needs whole ones; give epochs")
    return train.model_copy(update={"epochs": epochs})


def rescaled(train: TrainSpec, epochs: float) -> TrainSpec:
    """Return the settings for a training of other epochs, with r = epochs / train.epochs:

    step     after -> round(r after), at least 1; and factor -> factor^(D / d), with D decays in the whole training
             and d in the short one, so that the rate of the last epoch is the same share of that of the first.
             If the whole training has a decay, so has the short one, unless it has one epoch only.
    warmup   steps -> round(r steps), at least 1. Its decay ends with the training in any case.
    plateau  unchanged: it has no horizon.
    averaging, finetune: `after` and the epochs of the second stage -> r times as many, at least 1. With a second stage
             the first one has whole epochs.
    """
    if train.finetune is not None:
        epochs = max(1, round(epochs))
    if epochs == train.epochs:
        return train
    changes, ratio = {"epochs": float(epochs)}, epochs / train.epochs
    if train.averaging is not None and train.averaging.after:
        changes["averaging"] = AveragingSpec(after=max(1, round(ratio * train.averaging.after)))
    if train.finetune is not None:
        second = max(1, round(ratio * train.finetune.epochs))
        changes["finetune"] = train.finetune.model_copy(update={"epochs": second})
    if train.schedule is not None:
        changes["schedule"] = _scaled(train.schedule, train.epochs, epochs)
    return train.model_copy(update=changes)


def _scaled(schedule: Schedule, whole: float, short: float) -> Schedule:
    way = schedule.way
    if isinstance(way, Warmup) and way.steps:
        return Schedule(warmup=way.model_copy(update={"steps": max(1, round(way.steps * short / whole))}))
    if isinstance(way, StepDecay):
        return Schedule(step=_step(way, math.ceil(whole), math.ceil(short), short / whole))
    return schedule


def _step(way: StepDecay, whole: int, short: int, ratio: float) -> StepDecay:
    decays = max(0, whole - way.after)
    after = max(1, round(way.after * ratio))
    if decays and short > 1:
        after = min(after, short - 1)
    fewer = max(0, short - after)
    factor = rounded(way.factor ** (decays / fewer), DIGITS) if decays and fewer else way.factor
    return StepDecay(after=after, factor=factor if 0 < factor < 1 else way.factor)


def in_equal_time(match: MatchSpec, combined: list[Combination], source: Source) -> list[Combination]:
    """Return the combinations, each with the epochs that take the training time of the head `match.time`.

    Raises: SuiteError with every combination without a ratio, and every ratio of none.
    """
    references = _references(match.time, combined)
    if problems := _head_problems(match.time, references, combined, ("match", "time"), source):
        raise SuiteError(problems)
    (reference,), found = references, []
    names = {name for each in combined for name in _names(each)}
    for name in match.ratios.keys() - names:
        message = f"no head of this suite is '{name}'{nearest(name, sorted(names))}"
        problems.append(source.problem((*RATIOS, name), message, at_key=True))
    for each in combined:
        key = ratio_key(match, str(each.corpus.spec), str(each.backbone.spec), str(each.head.spec))
        if key is None and str(each.head.spec) != reference:
            again = "`harness plan SUITE --set match=null --time` prints the ratios"
            problems.append(source.problem(RATIOS, f"no ratio of {_names(each)[0]}; {again}"))
            continue
        epochs = max(round(each.train.epochs / match.ratios.get(key, 1.0), TIME_DIGITS), 10**-TIME_DIGITS)
        train = rescaled(each.train, epochs)  # with the schedule scaled to its epochs
        if train.epochs > MAX_EPOCHS:
            message = f"{each.head.spec} gets {train.epochs:g} epochs; expected at most {MAX_EPOCHS:,}"
            problems.append(source.problem((*RATIOS, key), message))
        found.append(replace(each, train=train))
    if problems:
        raise SuiteError(list(dict.fromkeys(problems)))
    return found


def row_name(corpus: str, backbone: str, head: str) -> str:
    """Return how `match.ratios` names one combination. The head alone is enough where it has one ratio."""
    return f"{head} on {backbone} and {corpus}"


def ratio_key(match: MatchSpec, corpus: str, backbone: str, head: str) -> str | None:
    """Return the key of `match.ratios` that means a combination; None without one."""
    return next((name for name in (row_name(corpus, backbone, head), head) if name in match.ratios), None)


def _names(each: Combination) -> tuple[str, str]:
    head = str(each.head.spec)
    return row_name(str(each.corpus.spec), str(each.backbone.spec), head), head


def matched(match: MatchSpec, combined: list[Combination], source: Source) -> list[Combination]:
    """Return the combinations, each at the width whose total number of parameters is nearest to the target.

    Combinations with the reference head are returned unchanged.

    Raises: SuiteError if the reference head or the width is not unique, or with every combination for which no width
        is within the tolerance.
    """
    references = _references(match.params, combined)
    others = [each for each in combined if str(each.head.spec) not in references]
    problems = _head_problems(match.params, references, combined, PARAMS, source)
    problems += _width_problems(match, others, source) + _repeated_problems(match, combined, source)
    if problems:
        raise SuiteError(list(dict.fromkeys(problems)))
    solved = {each.model: each for each in combined if str(each.head.spec) in references}
    targets = {model[:2]: each.params[0] for model, each in solved.items()}
    for each in others:
        if each.model not in solved:
            target = targets.get(each.model[:2], match.params)
            found, reason = _nearest(match.vary, each, target)
            solved[each.model] = found or each
            if abs(solved[each.model].params[0] - target) > TOLERANCE * target:
                message = _miss(match, each, found, target, reason) + _alternatives(match.vary, each, others)
                problems.append(source.problem(("match",), message))
    if problems:
        raise SuiteError(problems)
    return [replace(each, **{name: getattr(solved[each.model], name) for name in MATCHED}) for each in combined]


def closest_width(count_at: Callable[[int], int | None], target: int, start: int) -> int | None:
    """Return the width up to MAX_WIDTH whose count is nearest to the target; None if no width can be built.

    Of two widths that are equally near, the one that is nearer to `start` is returned. The widths that can be built are
    taken to be those of one distance, as the multiples of a number of attention heads, between a lowest and a highest
    one. Of them the count is bisected.

    Args:
        count_at: returns the count at a width, which increases with the width; None if the width cannot be built.
    """
    count = cache(lambda width: count_at(width) if width > 0 else None)
    halves = [start >> power for power in range(start.bit_length())]
    near = (width + gap for width in halves for gap in range(1, MAX_GAP))
    first = next((width for width in itertools.chain(halves, near) if count(width) is not None), None)
    if first is None:
        return None
    distances = range(1, MAX_GAP + 1)
    step = next((gap for gap in distances if count(first + gap) is not None or count(first - gap) is not None), None)
    if step is None:
        return first

    def size(width: int) -> float:
        number = count(width)
        return number if number is not None else 0 if width < first else math.inf

    widths = range(first % step or step, MAX_WIDTH + 1, step)
    at = bisect.bisect_left(widths, target, key=size)
    around = [width for width in (first, *widths[max(at - 1, 0) : at + 1]) if count(width) is not None]
    return min(around, key=lambda width: (abs(count(width) - target), abs(width - start)))


def _nearest(vary: str, combination: Combination, target: int) -> tuple[Combination | None, str]:
    """Return the combination at the nearest width, or None if no width can be built; and a reason.

    The reason is why the first width that failed cannot be built, if at most one width can be built; else ''.
    """
    (owner,) = _owners(vary, combination)
    component = getattr(combination, owner)
    built: dict[int | None, Combination] = {}
    reasons = []

    def count_at(width: int) -> int | None:
        spec = component.spec.model_copy(update={"params": {**component.spec.params, vary: width}})
        changed = replace(combination, **{owner: replace(component, spec=spec)})
        try:
            params = count(changed.facts.vocab_size, changed.backbone.spec, changed.head.spec)
        except ValueError as error:
            reasons.append(str(error))
            return None
        built[width] = replace(changed, params=params)
        return params[0]

    start = resolved(component.cls, component.spec.params)[vary]
    if start is None:
        start = embedding_width(combination.facts.vocab_size, combination.backbone.spec)
    found = built.get(closest_width(count_at, target, max(start, 1)))
    return found, reasons[0] if len(built) <= 1 and reasons else ""


def _miss(match: MatchSpec, each: Combination, found: Combination | None, target: int, reason: str) -> str:
    model = f"{each.head.spec} on {each.backbone.spec} and {each.corpus.spec}"
    if found is None:
        return f"no value of {match.vary} is possible for {model}: {reason}"
    (owner,) = _owners(match.vary, each)
    width, total = getattr(found, owner).spec.params[match.vary], found.params[0]
    whose = f"{match.params}'s " if isinstance(match.params, str) else ""
    percent = 100 * (total / target - 1)
    return (
        f"no {match.vary} brings {model} within {100 * TOLERANCE:g} % of {whose}{target:,} parameters: the nearest "
        f"found, {width}, has {total:,} ({percent:{'+,.0f' if abs(percent) >= 100 else '+.3g'}} %)"
        + (f", and no other can be built: {reason}" if reason else "")
    )


def _alternatives(vary: str, each: Combination, others: list[Combination]) -> str:
    """Return the end of a message: the widths that match.vary could name instead, which every combination has once."""
    names = [name for name in (*_widths(each.head), *_widths(each.backbone)) if name != vary]
    shared = [name for name in names if all(len(_owners(name, other)) == 1 for other in others)]
    return f"; other widths to vary: {', '.join(shared)}" if shared else ""


def _widths(component: Component) -> list[str]:
    return [name for name, parameter in parameters(component.cls).items() if is_width(parameter)]


def _owners(vary: str, combination: Combination) -> list[str]:
    return [kind for kind in ("head", "backbone") if vary in _widths(getattr(combination, kind))]


def _references(name: int | str, combined: list[Combination]) -> list[str]:
    """Return the heads that a name may mean: the one that the plan prints so, or all of this name."""
    names = {str(each.head.spec): each.head.spec.name for each in combined}
    return [name] if name in names else [text for text in names if names[text] == name]


def _head_problems(
    name: int | str, references: list[str], combined: list[Combination], place: Place, source: Source
) -> list[str]:
    """Return a problem unless the name is a number or names exactly one head."""
    if isinstance(name, int) or len(references) == 1:
        return []
    if references:
        texts = ", ".join(f"'{text}'" for text in references)
        message = f"'{name}' names several heads of this suite; expected one of {texts}" + (
            ", or a number" if place == PARAMS else ""
        )
    else:
        heads = {str(each.head.spec): each.head.spec.name for each in combined}
        texts = ", ".join(f"'{text}'" for text in heads)
        near = nearest(name, [*heads, *heads.values()])
        message = f"'{name}' is not a head of this suite{near or f' (it has: {texts})'}"
    return [source.problem(place, message)]


def _width_problems(match: MatchSpec, others: list[Combination], source: Source) -> list[str]:
    """Return a problem for each combination in which not exactly one of head and backbone has the width to vary."""
    problems = []
    for each in others:
        owners = _owners(match.vary, each)
        if len(owners) == 1:
            continue
        parts = {"head": each.head, "backbone": each.backbone}
        widths = {f"{kind} '{part.spec.name}'": _widths(part) for kind, part in parts.items()}
        head, backbone = widths
        if owners:
            message = f"both {head} and {backbone} have a parameter '{match.vary}'"
        else:
            near = nearest(match.vary, [*widths[head], *widths[backbone]])
            lists = "; ".join(f"{whose}: {', '.join(names) or 'none'}" for whose, names in widths.items())
            message = (
                f"neither {head} nor {backbone} has a width '{match.vary}'{near} "
                f"(widths are whole numbers named d_...; {lists})"
            )
        problems.append(source.problem(("match", "vary"), message))
    return problems


def _repeated_problems(match: MatchSpec, combined: list[Combination], source: Source) -> list[str]:
    """Return a problem for components that differ in the varied width only: matching would make them equal."""
    problems, seen = [], {}
    for component in (component for each in combined for component in (each.backbone, each.head)):
        values = resolved(component.cls, component.spec.params)
        if match.vary in values:
            width = values.pop(match.vary)
            before = seen.setdefault((component.spec.name, str(values)), width)
            if width != before:
                message = f"{match.vary} has the values {before} and {width}, but match.vary chooses it; give one value"
                problems.append(component.problem(source, message))
    return problems
