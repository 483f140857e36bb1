"""Comparison at equal numbers of parameters: find, for every corpus, backbone and head, the width that meets a target.

A head with more parameters may be better because of the parameters, and not because of its structure. This comparison
separates the two. Source: Parthiban et al. (2021), main table 5.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from harness.errors import SuiteError, nearest
from harness.plan.comparison import TOLERANCE, MatchSpec
from harness.plan.components import Component
from harness.plan.construction import count, embedding_width
from harness.plan.expansion import Combination
from harness.plan.parameters import is_width, parameters, resolved
from harness.plan.reader import Place, Source

PARAMS = ("match", "params")
MAX_WIDTH = 2**16
MAX_GAP = 64  # the largest gap between two widths that can be built: the number of attention heads must divide a width
MAX_BUILDS = 500  # the limit for one search: if most widths cannot be built, the search must end


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
            if not _agree(solved[each.model], target):
                message = _miss(match, each, found, target, reason) + _alternatives(match.vary, each, others)
                problems.append(source.problem(("match",), message))
    if problems:
        raise SuiteError(problems)
    return [replace(solved[each.model], corpus=each.corpus, facts=each.facts) for each in combined]


def closest_width(count_at: Callable[[int], int | None], target: int, start: int) -> int | None:
    """Return the width whose count is nearest to the target; None if no width can be built.

    Of two widths that are equally near, the one that is nearer to `start` is returned. The search begins with the first
    width from `start` on that can be built, doubles it until the count exceeds the target, and then bisects the
    interval. It calls `count_at` at most MAX_BUILDS times, with widths up to about twice MAX_WIDTH.

    Args:
        count_at: returns the count at a width, which increases with the width; None if the width cannot be built.
    """
    known: dict[int, int | None] = {}

    def first(widths: Iterable[int]) -> int | None:
        """Return the first width that can be built."""
        for width in widths:
            if width not in known:
                if len(known) == MAX_BUILDS:
                    return None
                known[width] = count_at(width)
            if known[width] is not None:
                return width
        return None

    low, high = 0, first(range(start, start + MAX_GAP))
    while high is not None and known[high] <= target and high <= MAX_WIDTH:
        low, high = high, first(range(2 * high, 2 * high + MAX_GAP))
    if high is None:
        high = 2 * low or start  # no width there can be built: treat them as too wide
    elif known[high] <= target:
        low = high  # the target is larger than the count at MAX_WIDTH
    while high - low > 1:
        middle = (low + high) // 2
        upwards = range(middle, min(high, middle + MAX_GAP))
        downwards = range(middle - 1, max(low, middle - MAX_GAP), -1)
        width = first([*upwards, *downwards])
        if width is not None and known[width] <= target:
            low = width
        else:
            high = width or middle
    counts = {width: number for width, number in known.items() if number is not None}
    return min(counts, key=lambda width: (abs(counts[width] - target), abs(width - start)), default=None)


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


def _agree(combination: Combination, target: int) -> bool:
    return abs(combination.params[0] - target) <= TOLERANCE * target


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


def reference_head(name: str, combined: list[Combination], place: Place, source: Source) -> None:
    """Raise SuiteError unless a name, or the text of a head as the plan prints it, means exactly one head."""
    if problems := _head_problems(name, _references(name, combined), combined, place, source):
        raise SuiteError(problems)


def _references(name: int | str, combined: list[Combination]) -> list[str]:
    """Return the heads, as the plan prints them, that a name may mean: the one with this text, or all with this
    name.
    """
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
