"""Parameter-matched comparison: for every corpus, backbone and head the width at which the totals agree with a target.

A gain of a head with more parameters may be a gain of the parameters. Source: Parthiban et al. (2021), main table 5.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from harness.errors import SuiteError
from harness.plan.construction import count
from harness.plan.expansion import Combination
from harness.plan.parameters import is_integer, parameters, resolved
from harness.plan.reader import Source
from harness.plan.specs import TOLERANCE, MatchSpec
from harness.registry import nearest

MAX_WIDTH = 2**17
MAX_GAP = 64  # between two widths that can be built: the number of attention heads must divide them


def matched(match: MatchSpec, combined: list[Combination], source: Source) -> list[Combination]:
    """The combinations, each at the width that brings its total nearest to the target; those of a reference head as
    they are.

    Raises: SuiteError with everything that is unclear, or with every combination that no width brings near enough.
    """
    problems = _reference_problems(match, combined, source)
    problems += _width_problems(match, combined, source) + _repeated_problems(match, combined, source)
    if problems:
        raise SuiteError(list(dict.fromkeys(problems)))
    solved = {each.model: each for each in combined if each.head.spec.name == match.params}
    targets = {model[:2]: each.params[0] for model, each in solved.items()}
    for each in combined:
        if each.model not in solved:
            target = targets.get(each.model[:2], match.params)
            found = solved[each.model] = _nearest(match.vary, each, target)
            if abs(found.params[0] - target) > TOLERANCE * target:
                problems.append(source.problem(("match",), _miss(match, each, found, target)))
    if problems:
        raise SuiteError(problems)
    return [replace(solved[each.model], corpus=each.corpus, facts=each.facts) for each in combined]


def closest_width(count_at: Callable[[int], int | None], target: int, start: int) -> int | None:
    """The width with the count nearest to the target, of equals the one nearest to `start`; None when there is none.

    Doubles the first width from `start` on that can be built until the count exceeds the target, then halves the
    interval.
    Args:
        count_at: width -> count, which grows with it; None for a width that cannot be built.
    """
    known: dict[int, int] = {}

    def first(widths: Iterable[int]) -> int | None:
        """The first that can be built."""
        for width in widths:
            number = count_at(width)
            if number is not None:
                known[width] = number
                return width
        return None

    low, high = 0, first(range(start, start + MAX_GAP))
    while high is not None and known[high] <= target and high <= MAX_WIDTH:
        low, high = high, first(range(2 * high, 2 * high + MAX_GAP))
    high = high or 2 * low  # nothing there can be built: as good as too wide
    while high - low > 1:
        middle = (low + high) // 2
        upwards = range(middle, min(high, middle + MAX_GAP))
        downwards = range(middle - 1, max(low, middle - MAX_GAP), -1)
        width = first([*upwards, *downwards])
        if width is not None and known[width] <= target:
            low = width
        else:
            high = width or middle
    return min(known, key=lambda width: (abs(known[width] - target), abs(width - start)), default=None)


def _nearest(vary: str, combination: Combination, target: int) -> Combination:
    """The combination at the width that is closest; as it is where no width of a number can be built."""
    (owner,) = _owners(vary, combination)
    component = getattr(combination, owner)
    built: dict[int | None, Combination] = {}

    def count_at(width: int) -> int | None:
        spec = component.spec.model_copy(update={"params": {**component.spec.params, vary: width}})
        changed = replace(combination, **{owner: replace(component, spec=spec)})
        params = count(changed.facts.vocab_size, changed.backbone.spec, changed.head.spec)
        if params is None:
            return None
        built[width] = replace(changed, params=params)
        return params[0]

    written = resolved(component.cls, component.spec.params)[vary]
    return built.get(closest_width(count_at, target, max(written or 1, 1)), combination)


def _miss(match: MatchSpec, each: Combination, found: Combination, target: int) -> str:
    (owner,) = _owners(match.vary, each)
    width, total = getattr(found, owner).spec.params.get(match.vary), found.params[0]
    whose = f"{match.params}'s " if isinstance(match.params, str) else ""
    return (
        f"no {match.vary} brings {each.head.spec} on {each.backbone.spec} and {each.corpus.spec} within "
        f"{100 * TOLERANCE:g} % of {whose}{target:,} parameters: the nearest that can be built, {width}, has {total:,} "
        f"({100 * (total / target - 1):+.3g} %)"
    )


def _owners(vary: str, combination: Combination) -> list[str]:
    return [kind for kind in ("head", "backbone") if vary in parameters(getattr(combination, kind).cls)]


def _reference_problems(match: MatchSpec, combined: list[Combination], source: Source) -> list[str]:
    """The head that is the target must be one, and known."""
    heads = list(dict.fromkeys((each.head.spec.name, str(each.head.spec)) for each in combined))
    names = [name for name, _ in heads]
    if isinstance(match.params, int) or names.count(match.params) == 1:
        return []
    if match.params not in names:
        message = f"'{match.params}' is no head of this suite{nearest(match.params, names)}"
    else:
        several = ", ".join(spec for name, spec in heads if name == match.params)
        message = f"'{match.params}' names several heads of this suite ({several}); expected one, or a number"
    return [source.problem(("match", "params"), message)]


def _width_problems(match: MatchSpec, combined: list[Combination], source: Source) -> list[str]:
    """What is varied must be an integer parameter of the head or of the backbone, not of both."""
    problems = []
    for each in combined:
        if each.head.spec.name == match.params:
            continue
        known = {kind: parameters(getattr(each, kind).cls) for kind in ("head", "backbone")}
        names = {kind: f"{kind} '{getattr(each, kind).spec.name}'" for kind in known}
        owners = _owners(match.vary, each)
        if len(owners) == 2:
            message = f"both {names['head']} and {names['backbone']} have a parameter '{match.vary}'"
        elif not owners:
            widths = {kind: [name for name, p in known[kind].items() if is_integer(p)] for kind in known}
            lists = "; ".join(f"{names[kind]}: {', '.join(widths[kind]) or 'none'}" for kind in known)
            near = nearest(match.vary, [name for kind in known for name in widths[kind]])
            message = f"neither {names['head']} nor {names['backbone']} has a parameter '{match.vary}'{near} ({lists})"
        elif not is_integer(known[owners[0]][match.vary]):
            message = f"expected a whole number, and {names[owners[0]]} has {known[owners[0]][match.vary]}"
        else:
            continue
        problems.append(source.problem(("match", "vary"), message))
    return problems


def _repeated_problems(match: MatchSpec, combined: list[Combination], source: Source) -> list[str]:
    """Components that differ in the varied width alone would all become the same."""
    problems, seen = [], {}
    for component in (component for each in combined for component in (each.backbone, each.head)):
        values = resolved(component.cls, component.spec.params)
        if match.vary in values:
            width = values.pop(match.vary)
            before = seen.setdefault((component.spec.name, str(values)), width)
            if width != before:
                message = f"{match.vary} is {before} and {width}, and match.vary chooses it; expected one value"
                problems.append(component.problem(source, message))
    return problems
