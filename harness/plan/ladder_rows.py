"""The key `ladder` of a suite: each backbone at several sizes, and a learning rate that follows from another size.

A size is a row like any other: its trials are ordinary trials, with the ids that they have without a ladder.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.plan.components import Component, Construction, value_in
from harness.plan.names import automatic
from harness.plan.parameters import parameters
from harness.plan.reader import Problems
from harness.plan.specs import ComponentSpec
from harness.plan.suite import Candidate, Row
from harness.plan.suite_file import LadderSpec, SuiteFile, TableSpec
from harness.plan.tuning import DIGITS, rounded
from harness.registry import BACKBONES

LADDER, SIZES, RATE = ("ladder",), ("ladder", "sizes"), "train.lr"
PAIRED = "paired"  # the test of a ladder
CONFIG = "config"  # the parameter of `hf` whose keys a size may give


def sized(backbones: list[Component], given: Any, problems: Problems) -> list[Component]:
    """Return each backbone at each size: a size's parameters take the place of the backbone's own.

    Args:
        given: the value of `ladder` in the file, which is not checked yet.
    """
    sizes = given.get("sizes") if isinstance(given, dict) else None
    if not isinstance(sizes, list) or not all(isinstance(size, dict) for size in sizes):
        return backbones  # the check of the file says what is wrong
    found = []
    for backbone in backbones:
        for index, size in enumerate(sizes):
            params = _with_size(backbone, size, index, problems)
            spec = ComponentSpec(name=backbone.spec.name, params=params)
            at = {"place": (*SIZES, index), "size": index + 1, "family": backbone.spec}
            found.append(replace(backbone, spec=spec, **at))
    return found


def _with_size(backbone: Component, size: Mapping[str, Any], index: int, problems: Problems) -> dict[str, Any]:
    known, params = parameters(backbone.cls), dict(backbone.spec.params)
    for key, value in size.items():
        place = (*SIZES, index, key)
        if key in known:
            try:
                params[key] = value_in(problems.source, known[key], value)
            except ValueError as error:
                problems.add(place, str(error))
        elif CONFIG in known:
            params[CONFIG] = {**(params.get(CONFIG) or {}), key: value}
        else:
            takes = ", ".join(known) or "none"
            message = f"'{key}' is no parameter of backbone '{backbone.spec.name}'"
            problems.add(place, f"{message} (it takes: {takes})", at_key=True)
    return params


def with_size_names(backbones: list[Component], construction: Construction, problems: Problems) -> list[Component]:
    """Return the backbones, those of a ladder with N in their labels: 'lstm 80k'. Sizes that do not
    grow are problems.
    """
    found, before = [], None
    for each in backbones:
        if each.family is None:
            return backbones
        number = construction.bodies[str(each.spec)].non_embedding
        if each.size > 1 and number <= before:
            counts = f"{number:,} parameters beside its embeddings, the one before {before:,}"
            message = f"expected sizes from small to large; this {each.spec.name} has {counts}"
            problems.add(each.place, message)
        before = number
        name = each.label or automatic(each.family, BACKBONES)
        label = f"{name} {number_text(number)}"
        if label in (other.label for other in found):  # two sizes that differ in the fourth digit
            label = f"{name} {number:,}"
        found.append(replace(each, label=label))
    return found


def number_text(number: float) -> str:
    """Return a number of parameters with three digits: '853k', '1.31M', '1.71B'."""
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * unit:
            return f"{number / unit:.3g}{name}"
    return f"{number:.0f}"


def check(file: SuiteFile, problems: Problems) -> None:
    """Check the keys of `ladder` against the rest of the file."""
    ladder = file.ladder
    if ladder is None:
        if file.table.shape == "ladder":
            problems.add(("table", "shape"), "the shape ladder is of a suite with the key 'ladder'")
        return
    if file.ngrams:
        message = "an n-gram model has no size, so it is no row of a ladder; give it in another suite"
        problems.add(("ngrams",), message, at_key=True)
    if file.table.test != PAIRED:
        problems.add(("table", "test"), f"a ladder compares shared seeds, by the {PAIRED} test; leave it out")
    if file.table.baseline is None:
        message = "a ladder compares each head with a baseline: name one in table.baseline"
        problems.add(LADDER, message, at_key=True)
    for key, listed in (("tuned", ladder.tuned), ("seeds", ladder.seeds)):
        most = len(ladder.sizes) if key == "tuned" else len(file.seeds)
        for index, number in enumerate(listed or []):
            if number > most:
                what = "sizes" if key == "tuned" else "seeds"
                message = f"expected a number from 1 to {most}, the number of {what}, got {number}"
                problems.add((*LADDER, key, index), message)
    if ladder.seeds is not None and len(ladder.seeds) != len(ladder.sizes):
        message = f"expected a number for each of the {len(ladder.sizes)} sizes"
        problems.add((*LADDER, "seeds"), f"{message}, got {ladder.seeds}")
    if ladder.tuned is not None and (file.tune is None or list(file.tune.space) != [RATE]):
        message = f"the rate of the other sizes follows from tuned ones: give tune.space {RATE} only"
        problems.add((*LADDER, "tuned"), message)
    if ladder.rate_power and ladder.tuned is None:
        message = "it moves the rates of sizes that are not tuned: name the tuned ones in ladder.tuned"
        problems.add((*LADDER, "rate_power"), message)


def with_shape(file: SuiteFile) -> TableSpec:
    """Return the settings of the table, of a ladder with its shape where the file gives none."""
    if file.ladder is None or "shape" in file.table.model_fields_set:
        return file.table
    return file.table.model_copy(update={"shape": "ladder"})


def is_tuned(file: SuiteFile, row: Row) -> bool:
    """Return whether the points of `tune` are tried for a row."""
    tuned = None if file.ladder is None else file.ladder.tuned
    return tuned is None or row.backbone.size in tuned


def seeds_of(file: SuiteFile, row: Row) -> list[int]:
    """Return the seeds of a row."""
    if file.ladder is None or file.ladder.seeds is None:
        return file.seeds
    return file.seeds[: file.ladder.seeds[row.backbone.size - 1]]


def following(row: Row, rows: list[Row], ladder: LadderSpec, at: Callable[[float], Candidate]) -> Row:
    """Return a row whose learning rate follows from that of the nearest tuned size of its family.

        rate(N) = rate(n) (N / n)^p,  n the tuned size for which |log(N / n)| is smallest

    p is one for all heads. A line through a head's own rates would carry the noise of one choice to
    the largest size, where it can cost more than heads differ by (docs/log.md).

    Args:
        rows: all rows of the suite.
        ladder: has the numbers of the tuned sizes, and p, its `rate_power`.
        at: returns the row's candidate at a learning rate.
    """
    tuned = [each for each in rows if each.family == row.family and each.size in ladder.tuned]
    near = min(tuned, key=lambda each: abs(math.log(row.non_embedding / each.non_embedding)))
    moved = (row.non_embedding / near.non_embedding) ** ladder.rate_power

    def follows(now: Sequence[Row]) -> Candidate:
        for each in now:
            is_near = each.family == near.family and each.size == near.size
            if is_near and each.chosen is not None:
                rate = rounded(each.chosen.point[RATE] * moved, DIGITS)
                return replace(at(rate), point={RATE: rate})
        return at(row.train.lr)

    return replace(row, candidates=(follows([]),), follows=follows, nearest=near.size)
