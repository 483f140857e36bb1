"""The key `match` of a suite: rows of equal numbers of parameters, or of equal training time.

A head with more parameters, or more time, may be better because of these and not because of its structure. Source:
Parthiban et al. (2021), main table 5.
"""

import bisect
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from harness.errors import SuiteError, nearest
from harness.plan.components import Component, count, embedding_width
from harness.plan.lengths import rescaled
from harness.plan.parameters import is_width, parameters, resolved
from harness.plan.reader import Place, Source
from harness.plan.specs import MAX_EPOCHS
from harness.plan.suite import Row
from harness.plan.suite_file import TOLERANCE, MatchSpec

TIME_DIGITS = 2  # of epochs that stand for a time
PARAMS, RATIOS = ("match", "params"), ("match", "ratios")
MATCHED = ("backbone", "head", "params", "settled")  # what a row has of its width
MAX_WIDTH = 2**16
MAX_GAP = 64  # the largest gap between two widths that can be built: the number of attention heads must divide a width


def in_equal_time(match: MatchSpec, rows: list[Row], source: Source) -> list[Row]:
    """Return the rows, each with the epochs that take the training time of the head `match.time`.

    Raises: SuiteError with every row without a ratio, and every ratio of none.
    """
    references = _references(match.time, rows)
    if problems := _head_problems(match.time, references, rows, ("match", "time"), source):
        raise SuiteError(problems)
    (reference,), found = references, []
    names = {name for each in rows for name in _names(each)}
    for name in match.ratios.keys() - names:
        message = f"no head of this suite is '{name}'{nearest(name, sorted(names))}"
        problems.append(source.problem((*RATIOS, name), message, at_key=True))
    for each in rows:
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
    """Return how `match.ratios` names one row. The head alone is enough where it has one ratio."""
    return f"{head} on {backbone} and {corpus}"


def ratio_key(match: MatchSpec, corpus: str, backbone: str, head: str) -> str | None:
    """Return the key of `match.ratios` that means a row; None without one."""
    return next((name for name in (row_name(corpus, backbone, head), head) if name in match.ratios), None)


def _names(each: Row) -> tuple[str, str]:
    head = str(each.head.spec)
    return row_name(str(each.corpus.spec), str(each.backbone.spec), head), head


def matched(match: MatchSpec, rows: list[Row], source: Source) -> list[Row]:
    """Return the rows, each at the width whose total number of parameters is nearest to the target.

    Rows with the reference head are returned unchanged.

    Raises: SuiteError if the reference head or the width is not unique, or with every row for which no width
        is within the tolerance.
    """
    references = _references(match.params, rows)
    others = [each for each in rows if str(each.head.spec) not in references]
    problems = _head_problems(match.params, references, rows, PARAMS, source)
    problems += _width_problems(match, others, source) + _repeated_problems(match, rows, source)
    if problems:
        raise SuiteError(list(dict.fromkeys(problems)))
    solved = {each.model: each for each in rows if str(each.head.spec) in references}
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
    return [replace(each, **{name: getattr(solved[each.model], name) for name in MATCHED}) for each in rows]


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


def _nearest(vary: str, row: Row, target: int) -> tuple[Row | None, str]:
    """Return the row at the nearest width, or None if no width can be built; and a reason.

    The reason is why the first width that failed cannot be built, if at most one width can be built; else ''.
    """
    (owner,) = _owners(vary, row)
    component = getattr(row, owner)
    built: dict[int | None, Row] = {}
    reasons = []

    def count_at(width: int) -> int | None:
        spec = component.spec.model_copy(update={"params": {**component.spec.params, vary: width}})
        changed = replace(row, **{owner: replace(component, spec=spec)})
        try:
            params = count(changed.facts.vocab_size, changed.backbone.spec, changed.head.spec)
        except ValueError as error:
            reasons.append(str(error))
            return None
        built[width] = replace(changed, params=params)
        return params[0]

    start = resolved(component.cls, component.spec.params)[vary]
    if start is None:
        start = embedding_width(row.facts.vocab_size, row.backbone.spec)
    found = built.get(closest_width(count_at, target, max(start, 1)))
    return found, reasons[0] if len(built) <= 1 and reasons else ""


def _miss(match: MatchSpec, each: Row, found: Row | None, target: int, reason: str) -> str:
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


def _alternatives(vary: str, each: Row, others: list[Row]) -> str:
    """Return the end of a message: the widths that match.vary could name instead, which every row has once."""
    names = [name for name in (*_widths(each.head), *_widths(each.backbone)) if name != vary]
    shared = [name for name in names if all(len(_owners(name, other)) == 1 for other in others)]
    return f"; other widths to vary: {', '.join(shared)}" if shared else ""


def _widths(component: Component) -> list[str]:
    return [name for name, parameter in parameters(component.cls).items() if is_width(parameter)]


def _owners(vary: str, row: Row) -> list[str]:
    return [kind for kind in ("head", "backbone") if vary in _widths(getattr(row, kind))]


def _references(name: int | str, rows: list[Row]) -> list[str]:
    """Return the heads that a name may mean: the one that the plan prints so, or all of this name."""
    names = {str(each.head.spec): each.head.spec.name for each in rows}
    return [name] if name in names else [text for text in names if names[text] == name]


def _head_problems(name: int | str, references: list[str], rows: list[Row], place: Place, source: Source) -> list[str]:
    """Return a problem unless the name is a number or names exactly one head."""
    if isinstance(name, int) or len(references) == 1:
        return []
    if references:
        texts = ", ".join(f"'{text}'" for text in references)
        message = f"'{name}' names several heads of this suite; expected one of {texts}" + (
            ", or a number" if place == PARAMS else ""
        )
    else:
        heads = {str(each.head.spec): each.head.spec.name for each in rows}
        texts = ", ".join(f"'{text}'" for text in heads)
        near = nearest(name, [*heads, *heads.values()])
        message = f"'{name}' is not a head of this suite{near or f' (it has: {texts})'}"
    return [source.problem(place, message)]


def _width_problems(match: MatchSpec, others: list[Row], source: Source) -> list[str]:
    """Return a problem for each row in which not exactly one of head and backbone has the width to vary."""
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


def _repeated_problems(match: MatchSpec, rows: list[Row], source: Source) -> list[str]:
    """Return a problem for components that differ in the varied width only: matching would make them equal."""
    problems, seen = [], {}
    for component in (component for each in rows for component in (each.backbone, each.head)):
        values = resolved(component.cls, component.spec.params)
        if match.vary in values:
            width = values.pop(match.vary)
            before = seen.setdefault((component.spec.name, str(values)), width)
            if width != before:
                message = f"{match.vary} has the values {before} and {width}, but match.vary chooses it; give one value"
                problems.append(component.problem(source, message))
    return problems
