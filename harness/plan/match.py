"""The key `match` of a suite: rows of equal numbers of parameters, of equal FLOPs, or of equal training time.

A head with more parameters, or more time, may be better because of these and not because of its
structure. Source: Parthiban et al. (2021), main table 5.
"""

import bisect
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from harness.errors import nearest
from harness.plan.components import Component, count, embedding_width
from harness.plan.lengths import rescaled
from harness.plan.parameters import is_width, parameters, resolved
from harness.plan.reader import Place, Problems
from harness.plan.specs import MAX_EPOCHS
from harness.plan.suite import Row
from harness.plan.suite_file import TOLERANCE, MatchSpec
from harness.plan.tuning import rounded

TIME_DIGITS = 2  # of epochs that stand for a time
FLOPS_DIGITS = 6  # significant ones, of epochs that stand for a number of FLOPs
PARAMS, FLOPS, RATIOS = ("match", "params"), ("match", "flops"), ("match", "ratios")
MAX_WIDTH = 2**16
# The largest gap between two widths that can be built: attention heads must divide a width.
MAX_GAP = 64


def in_equal_time(match: MatchSpec, rows: list[Row], problems: Problems) -> list[Row]:
    """Return the rows, each with the epochs that take the training time of the head `match.time`.

    Raises: SuiteError with every row without a ratio, and every ratio of none.
    """
    references = _references(match.time, rows)
    _check_reference(match.time, references, rows, ("match", "time"), problems)
    problems.raise_if_any()
    (reference,) = references
    names: set[str] = set()
    for row in rows:
        names.update(_names(row))
    for name in match.ratios:
        if name not in names:
            message = f"no head of this suite is '{name}'{nearest(name, sorted(names))}"
            problems.add((*RATIOS, name), message, at_key=True)
    found = []
    for row in rows:
        head = str(row.head.spec)
        key = ratio_key(match, str(row.corpus.spec), str(row.backbone.spec), head)
        if key is None and head != reference:
            again = "`harness plan SUITE --set match=null --time` prints the ratios"
            problems.add(RATIOS, f"no ratio of {_names(row)[0]}; {again}")
            continue
        # Rounded, because the epochs are part of the trial's id, and a ratio is measured.
        epochs = round(row.train.epochs / match.ratios.get(key, 1.0), TIME_DIGITS)
        train = rescaled(row.train, max(epochs, 10**-TIME_DIGITS))
        if train.epochs > MAX_EPOCHS:
            message = f"{head} gets {train.epochs:g} epochs; expected at most {MAX_EPOCHS:,}"
            problems.add((*RATIOS, key), message)
        found.append(replace(row, train=train))
    problems.raise_if_any()
    return found


def in_equal_flops(match: MatchSpec, rows: list[Row], problems: Problems) -> list[Row]:
    """Return the rows, each with the epochs in which it takes as many FLOPs as the head `match.flops`
    does in those of the suite, on the same corpus and backbone.

        epochs = epochs of the suite x FLOPs of a token of the named head / FLOPs of a token

    Raises: SuiteError where the head is not unique, or FLOPs are not known from shapes.
    """
    references = _references(match.flops, rows)
    _check_reference(match.flops, references, rows, FLOPS, problems)
    problems.raise_if_any()
    named = {}
    for row in rows:
        if row.train.finetune is not None:
            message = "finetune has whole epochs, which cannot take equal FLOPs; leave out one of the two"
            problems.add(FLOPS, message)
        if isinstance(row.flops, str):
            problems.add(FLOPS, row.flops)
        elif str(row.head.spec) in references:
            named[row.key[:2]] = row.flops.total
    problems.raise_if_any()
    found = []
    for row in rows:
        epochs = rounded(row.train.epochs * named[row.key[:2]] / row.flops.total, FLOPS_DIGITS)
        found.append(replace(row, train=rescaled(row.train, epochs)))
        if epochs > MAX_EPOCHS:
            message = f"{row.head.spec} gets {epochs:g} epochs; expected at most {MAX_EPOCHS:,}"
            problems.add(FLOPS, message)
    problems.raise_if_any()
    return found


def row_name(corpus: str, backbone: str, head: str) -> str:
    """Return how `match.ratios` names one row. The head alone is enough where it has one ratio."""
    return f"{head} on {backbone} and {corpus}"


def ratio_key(match: MatchSpec, corpus: str, backbone: str, head: str) -> str | None:
    """Return the key of `match.ratios` that means a row; None without one."""
    for name in (row_name(corpus, backbone, head), head):
        if name in match.ratios:
            return name
    return None


def _names(row: Row) -> tuple[str, str]:
    head = str(row.head.spec)
    return row_name(str(row.corpus.spec), str(row.backbone.spec), head), head


def matched(match: MatchSpec, rows: list[Row], problems: Problems) -> list[Row]:
    """Return the rows, each at the width whose number of parameters is nearest to the target.

    Rows with the reference head are returned unchanged.

    Raises: SuiteError if the reference head or the width is not unique, or with every row for which
        no width is within the tolerance.
    """
    references = _references(match.params, rows)
    others = [row for row in rows if str(row.head.spec) not in references]
    _check_reference(match.params, references, rows, PARAMS, problems)
    _check_widths(match, others, problems)
    _check_repeated(match, rows, problems)
    problems.raise_if_any()
    solved, targets = {}, {}  # a model of several corpora is solved once
    for row in rows:
        if str(row.head.spec) in references:
            solved[row.model] = row
            targets[row.model[:2]] = row.params[0]  # of its vocabulary and backbone
    for row in others:
        if row.model in solved:
            continue
        target = targets.get(row.model[:2], match.params)
        found, reason = _nearest(match.vary, row, target)
        solved[row.model] = found or row
        if abs(solved[row.model].params[0] - target) > TOLERANCE * target:
            message = _miss(match, row, found, target, reason)
            problems.add(("match",), message + _alternatives(match.vary, row, others))
    problems.raise_if_any()
    found = []
    for row in rows:
        at = solved[row.model]
        parts = {"backbone": at.backbone, "head": at.head}
        found.append(replace(row, **parts, params=at.params, settled=at.settled))
    return found


def closest_width(count_at: Callable[[int], int | None], target: int, start: int) -> int | None:
    """Return the width up to MAX_WIDTH whose count is nearest to the target; None if no width can
    be built.

    Of two widths that are equally near, the one that is nearer to `start` is returned. The widths
    that can be built are taken to be those of one distance, as the multiples of a number of
    attention heads, between a lowest and a highest one. Of them the count is bisected.

    Args:
        count_at: returns the count at a width, which increases with the width; None if the width
            cannot be built.
    """
    count = cache(lambda width: count_at(width) if width > 0 else None)  # a count builds a model
    first = _first_width(count, start)
    if first is None:
        return None
    step = _step_of_widths(count, first)
    if step is None:
        return first

    def size(width: int) -> float:
        number = count(width)
        if number is not None:
            return number
        return 0 if width < first else math.inf  # so that the counts increase over all widths

    widths = range(first % step or step, MAX_WIDTH + 1, step)
    at = bisect.bisect_left(widths, target, key=size)
    around = (first, *widths[max(at - 1, 0) : at + 1])
    possible = [width for width in around if count(width) is not None]
    return min(possible, key=lambda width: (abs(count(width) - target), abs(width - start)))


def _first_width(count: Callable[[int], int | None], start: int) -> int | None:
    """Return a width that can be built: the start, a half of it, or the next one above these."""
    halves = [start >> power for power in range(start.bit_length())]
    for width in halves:
        if count(width) is not None:
            return width
    for width in halves:
        for gap in range(1, MAX_GAP):
            if count(width + gap) is not None:
                return width + gap
    return None


def _step_of_widths(count: Callable[[int], int | None], width: int) -> int | None:
    """Return the distance of a width to the next one that can be built; None for no other one."""
    for gap in range(1, MAX_GAP + 1):
        if count(width + gap) is not None or count(width - gap) is not None:
            return gap
    return None


def _nearest(vary: str, row: Row, target: int) -> tuple[Row | None, str]:
    """Return the row at the nearest width, or None if no width can be built; and a reason.

    The reason is why the first width that failed cannot be built, if at most one width can be
    built; else ''.
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
    if start is None:  # d_embed: the width of the embedding
        start = embedding_width(row.facts.vocab_size, row.backbone.spec)
    found = built.get(closest_width(count_at, target, max(start, 1)))
    return found, reasons[0] if len(built) <= 1 and reasons else ""


def _miss(match: MatchSpec, row: Row, found: Row | None, target: int, reason: str) -> str:
    model = f"{row.head.spec} on {row.backbone.spec} and {row.corpus.spec}"
    if found is None:
        return f"no value of {match.vary} is possible for {model}: {reason}"
    (owner,) = _owners(match.vary, row)
    width, total = getattr(found, owner).spec.params[match.vary], found.params[0]
    whose = f"{match.params}'s " if isinstance(match.params, str) else ""
    percent = 100 * (total / target - 1)
    shown = f"{percent:+,.0f}" if abs(percent) >= 100 else f"{percent:+.3g}"
    message = (
        f"no {match.vary} brings {model} within {100 * TOLERANCE:g} % of {whose}{target:,} "
        f"parameters: the nearest found, {width}, has {total:,} ({shown} %)"
    )
    return f"{message}, and no other can be built: {reason}" if reason else message


def _alternatives(vary: str, row: Row, others: list[Row]) -> str:
    """Return the end of a message: the widths that match.vary could name instead, which every row
    has once.
    """
    shared = []
    for name in (*_widths(row.head), *_widths(row.backbone)):
        owners = {len(_owners(name, other)) for other in others}
        if name != vary and owners == {1}:
            shared.append(name)
    return f"; other widths to vary: {', '.join(shared)}" if shared else ""


def _widths(component: Component) -> list[str]:
    known = parameters(component.cls)
    return [name for name, parameter in known.items() if is_width(parameter)]


def _owners(vary: str, row: Row) -> list[str]:
    return [kind for kind in ("head", "backbone") if vary in _widths(getattr(row, kind))]


def _references(name: int | str, rows: list[Row]) -> list[str]:
    """Return the heads that a name may mean: the one that the plan prints so, or all called so."""
    names = {str(row.head.spec): row.head.spec.name for row in rows}
    return [name] if name in names else [text for text in names if names[text] == name]


def _check_reference(
    name: int | str,
    references: list[str],
    rows: list[Row],
    place: Place,
    problems: Problems,
) -> None:
    """The name must be a number or name exactly one head."""
    if isinstance(name, int) or len(references) == 1:
        return
    if references:
        texts = ", ".join(f"'{text}'" for text in references)
        message = f"'{name}' names several heads of this suite; expected one of {texts}"
        message += ", or a number" if place == PARAMS else ""
    else:
        heads = {str(row.head.spec): row.head.spec.name for row in rows}
        texts = ", ".join(f"'{text}'" for text in heads)
        near = nearest(name, [*heads, *heads.values()])
        message = f"'{name}' is not a head of this suite{near or f' (it has: {texts})'}"
    problems.add(place, message)


def _check_widths(match: MatchSpec, others: list[Row], problems: Problems) -> None:
    """Exactly one of head and backbone of a row must have the width to vary."""
    for row in others:
        owners = _owners(match.vary, row)
        if len(owners) == 1:
            continue
        head, backbone = f"head '{row.head.spec.name}'", f"backbone '{row.backbone.spec.name}'"
        if owners:
            message = f"both {head} and {backbone} have a parameter '{match.vary}'"
        else:
            of_head, of_backbone = _widths(row.head), _widths(row.backbone)
            near = nearest(match.vary, [*of_head, *of_backbone])
            lists = f"{head}: {', '.join(of_head) or 'none'}"
            lists += f"; {backbone}: {', '.join(of_backbone) or 'none'}"
            fault = f"neither {head} nor {backbone} has a width '{match.vary}'{near}"
            message = f"{fault} (widths are whole numbers named d_...; {lists})"
        problems.add(("match", "vary"), message)


def _check_repeated(match: MatchSpec, rows: list[Row], problems: Problems) -> None:
    """No two components may differ in the varied width only: matching would make them equal."""
    seen: dict[tuple[str, str], Any] = {}
    for row in rows:
        for component in (row.backbone, row.head):
            values = resolved(component.cls, component.spec.params)
            if match.vary not in values:
                continue
            width = values.pop(match.vary)
            before = seen.setdefault((component.spec.name, str(values)), width)
            if width != before:
                given = f"{match.vary} has the values {before} and {width}"
                component.report(problems, f"{given}, but match.vary chooses it; give one value")
