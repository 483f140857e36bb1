"""The rows of a suite with `tune`: for each row its points, with the trials that try them and those that may follow."""

import json
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from harness.errors import SuiteError
from harness.plan.canonical import canonical
from harness.plan.components import MAX_TRIALS, Component
from harness.plan.construction import Construction
from harness.plan.expansion import Combination, trials
from harness.plan.loaded_suite import Candidate, TunedRow, Tuning
from harness.plan.parameters import checked, parameters, sentence
from harness.plan.reader import Source
from harness.plan.short_training import rescaled
from harness.plan.specs import TrainSpec, TrialSpec
from harness.plan.suite_file import SuiteFile
from harness.plan.tuning import Point, point_text, points

SPACE = ("tune", "space")


@dataclass(frozen=True, slots=True)
class TunedComponent(Component):
    """A component with parameters of a point. The place of its problems is the space."""

    def problem(self, source: Source, message: str) -> str:
        """See Component."""
        return source.problem(SPACE, f"{self.spec}: {message}")


@dataclass(frozen=True, slots=True)
class Expansion:
    """The trials of a tuned suite, with those of points that will not be chosen.

    Args:
        origins: trial id -> its combination, with the parameters of its point.
    """

    tuning: Tuning
    origins: dict[str, Combination]


def expand(file: SuiteFile, combined: list[Combination], source: Source) -> Expansion:
    """Return the rows of a suite: for each combination, its points without the keys that do not apply to it.

    Points that are equal then are one point. The values of a point take the place of those of `train`.

    Raises: SuiteError when a point cannot be built or changes the number of parameters of a matched model, and when
        two rows are equal.
    """
    drawn, rows, problems = points(file.tune), [], []
    if len(combined) * len(drawn) * (1 + len(file.seeds)) > MAX_TRIALS:
        raise SuiteError([source.problem(("tune",), f"expands to more than {MAX_TRIALS} trials, at most")])
    origins: dict[str, Combination] = {}
    for each in combined:
        applicable = {canonical(found): found for found in (_applicable(point, each) for point in drawn)}
        candidates = []
        for point in applicable.values():
            try:
                candidates.append(_candidate(file, each, point, origins, source))
            except SuiteError as error:
                problems += error.problems
        rows.append(TunedRow(candidates=tuple(candidates)))
    if problems:
        raise SuiteError(list(dict.fromkeys(problems)))
    return Expansion(Tuning(spec=file.tune, rows=tuple(rows), choices=(None,) * len(rows)), origins)


def _applicable(point: Point, combination: Combination) -> Point:
    """Return the part of a point that applies to a combination, with the values in the types of its parameters."""
    found = {}
    for key, value in point.items():
        owner, _, name = key.partition(".")
        if owner == "train":
            found[key] = value
        elif (parameter := parameters(getattr(combination, owner).cls).get(name)) is not None:
            found[key] = checked(parameter, value)
    return found


def _candidate(
    file: SuiteFile, each: Combination, point: Point, origins: dict[str, Combination], source: Source
) -> Candidate:
    """Return a point of a row with its trials, and add these to `origins`."""
    at_point, train = _combination(each, point, source), _train(each.train, point, source)
    if file.match is not None and at_point.params != each.params:
        message = f"{point_text(point)} changes the number of parameters of {each.head.spec}, which `match` fixes"
        raise SuiteError([source.problem(SPACE, message)])
    length = train.epochs if file.tune.epochs is None else file.tune.epochs
    if length > train.epochs:
        message = f"{each.head.spec} is trained for {train.epochs:g} epochs, got {length:g} for its tuning"
        raise SuiteError([source.problem(("tune", "epochs"), message)])
    (short,), _ = _trials(at_point, rescaled(train, length), [file.tune.seed], source)
    finals, of_finals = _trials(at_point, train, file.seeds, source)
    if short.id in origins:
        raise SuiteError([each.head.problem(source, f"the row of '{short}' is in the suite twice")])
    origins |= {short.id: at_point, **of_finals}
    return Candidate(point=point, trial=short, finals=finals)


def _trials(
    combination: Combination, train: TrainSpec, seeds: list[int], source: Source
) -> tuple[tuple[TrialSpec, ...], dict[str, Combination]]:
    found, origins = trials([replace(combination, train=train)], seeds, source)
    return tuple(found.values()), origins


def _combination(each: Combination, point: Point, source: Source) -> Combination:
    """Return a combination with the parameters of a point, built once to count its parameters."""
    changes = {owner: _parameters_of(owner, point) for owner in ("backbone", "head")}
    if not any(changes.values()):
        return each
    made = {}
    for owner, params in changes.items():
        old: Component = getattr(each, owner)
        spec = old.spec.model_copy(update={"params": {**old.spec.params, **params}})
        made[owner] = TunedComponent(spec, old.cls, old.place)
    construction = Construction(source)
    construction.check([each.facts.vocab_size], [made["backbone"]], [made["head"]])
    if construction.problems:
        raise SuiteError(construction.problems)
    changed = replace(each, **made)
    return replace(changed, params=construction.params[changed.model], settled=construction.settled[changed.model])


def _parameters_of(owner: str, point: Point) -> dict[str, Any]:
    return {key.removeprefix(f"{owner}."): value for key, value in point.items() if key.startswith(f"{owner}.")}


def _train(train: TrainSpec, point: Point, source: Source) -> TrainSpec:
    """Return the settings of a point. Where it has epochs, the schedule of the suite is scaled to these."""
    changes = _parameters_of("train", point)
    epochs = changes.pop("epochs", train.epochs)
    try:
        given = train.model_dump(mode="json", exclude_defaults=True)
        return rescaled(TrainSpec.model_validate_json(json.dumps({**given, **changes})), epochs)
    except ValidationError as error:
        raise SuiteError([source.problem(SPACE, f"{point_text(point)}: {sentence(error.errors()[0])}")]) from None
