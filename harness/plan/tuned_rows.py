"""The rows of a suite with `tune`: for each row its points, with the trials that try them and those that may follow."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, get_args, get_origin

from pydantic import ValidationError

from harness.errors import SuiteError, nearest
from harness.plan.components import MAX_TRIALS, Component, Construction
from harness.plan.expansion import trials_of
from harness.plan.lengths import rescaled
from harness.plan.parameters import checked, is_place, parameters, sentence
from harness.plan.reader import Source
from harness.plan.specs import DECIDES_NO_RESULT, EvalSpec, Strict, TrainSpec, TrialSpec, canonical
from harness.plan.suite import Candidate, Row
from harness.plan.suite_file import SuiteFile
from harness.plan.tuning import Point, TuneSpec, point_text, points, with_setting

SPACE = ("tune", "space")


@dataclass(frozen=True, slots=True)
class TunedComponent(Component):
    """A component with parameters of a point. The place of its problems is the space."""

    def problem(self, source: Source, message: str) -> str:
        return source.problem(SPACE, f"{self.spec}: {message}")


def with_candidates(file: SuiteFile, rows: list[Row], source: Source) -> list[Row]:
    """Return the rows of a suite with their candidates: the points of the space without the keys that do not apply to
    the row. Points that are equal then are one. The values of a point take the place of those of `train`.

    Raises: SuiteError when a point cannot be built or changes the number of parameters of a matched model, and when
        two rows are equal.
    """
    drawn, found, problems, known = points(file.tune), [], [], set()
    if len(rows) * len(drawn) * (1 + len(file.seeds)) > MAX_TRIALS:
        raise SuiteError([source.problem(("tune",), f"expands to more than {MAX_TRIALS} trials, at most")])
    for row in rows:
        candidates: dict[str, Candidate | None] = {}
        for drawn_point in drawn:
            try:
                point = _applicable(file.tune, drawn_point, row, source)
                if canonical(point) not in candidates:
                    candidates[canonical(point)] = None
                    candidates[canonical(point)] = _candidate(file, row, point, known, source)
            except SuiteError as error:
                problems += error.problems
        found.append(replace(row, tune=file.tune, candidates=tuple(filter(None, candidates.values()))))
    if problems:
        raise SuiteError(list(dict.fromkeys(problems)))
    return found


def _applicable(tune: TuneSpec, point: Point, row: Row, source: Source) -> Point:
    """Return the part of a point that applies to a combination, with the values in the types of its parameters.

    Raises: SuiteError for values of another type.
    """
    found, problems = {}, []
    for key, value in point.items():
        owner, _, name = key.partition(".")
        component = None if owner == "train" else getattr(row, owner)
        if component is None:
            found[key] = value
        elif (parameter := parameters(component.cls).get(name)) is not None:
            try:
                found[key] = checked(parameter, value)
            except ValueError as error:
                problems.append(_of_value(tune, key, value, f"{error} (for {component.spec.name})", source))
    if problems:
        raise SuiteError(problems)
    return found


def _of_value(tune: TuneSpec, key: str, value: Any, reason: str, source: Source) -> str:
    """Return a problem of one value of an axis, at its place; of a range, at that of the range."""
    axis, place = tune.space[key], (*SPACE, key)
    if axis.range is None:
        within = () if axis.grid is not None else ("choice",)
        return source.problem((*place, *within, axis.listed.index(value)), reason)
    expected = reason.partition(", got")[0]  # the same for whatever is drawn
    message = f"{expected}; give whole numbers as a list or a choice" if "integer" in expected else expected
    return source.problem((*place, "uniform" if axis.log_uniform is None else "log_uniform"), message)


def _candidate(file: SuiteFile, row: Row, point: Point, known: set[str], source: Source) -> Candidate:
    """Return a row at a point, with its trials, and add the ids of these to `known`."""
    train = _train(file.tune, row.train, point, source)
    at_point = _at(row, point, source)
    if file.match is not None and at_point.params != row.params:
        message = f"{point_text(point)} changes the number of parameters of {row.head.spec}, which `match` fixes"
        raise SuiteError([source.problem(SPACE, message)])
    lengths = file.tune.lengths(train.epochs)
    if lengths[-1] > train.epochs:
        message = f"{row.head.spec} is trained for {train.epochs:g} epochs, got {lengths[-1]:g} for its tuning"
        raise SuiteError([source.problem(("tune", "epochs"), message)])
    parts = row, at_point.backbone, at_point.head
    tuning: list[TrialSpec] = []
    for length in dict.fromkeys(lengths):
        tuning += trials_of(*parts, rescaled(train, length), [file.tune.seed])
    finals = tuple(trials_of(*parts, train, file.seeds))
    ids = {trial.id for trial in tuning}
    if len(ids) < len(tuning) or not ids.isdisjoint(known):
        raise SuiteError([row.head.problem(source, f"the row of '{tuning[0]}' is in the suite twice")])
    known.update(trial.id for trial in (*tuning, *finals))
    return replace(at_point, tuning_trials=tuple(tuning), trials=finals)


def _at(row: Row, point: Point, source: Source) -> Candidate:
    """Return a row at a point without trials, built once to count its parameters."""
    made, changes = {}, {owner: _parameters_of(owner, point) for owner in ("backbone", "head")}
    if not any(changes.values()):
        return Candidate(point=point, backbone=row.backbone, head=row.head, params=row.params, settled=row.settled)
    for owner, params in changes.items():
        old: Component = getattr(row, owner)
        kept = {field.name: getattr(old, field.name) for field in fields(old)}
        spec = old.spec.model_copy(update={"params": {**old.spec.params, **params}})
        made[owner] = TunedComponent(**{**kept, "spec": spec})
    construction = Construction(source)
    construction.check([row.facts.vocab_size], [made["backbone"]], [made["head"]])
    if construction.problems:
        raise SuiteError(construction.problems)
    ((params, settled),) = construction.models.values()
    return Candidate(point=point, **made, params=params, settled=settled)


def _parameters_of(owner: str, point: Point) -> dict[str, Any]:
    return {key.removeprefix(f"{owner}."): value for key, value in point.items() if key.startswith(f"{owner}.")}


def _train(tune: TuneSpec, train: TrainSpec, point: Point, source: Source) -> TrainSpec:
    """Return the settings of a point. Where it has epochs, the schedule of the suite is scaled to these."""
    changes = _parameters_of("train", point)
    epochs = changes.pop("epochs", train.epochs)
    given = train.model_dump(mode="json", exclude_defaults=True)
    for name, value in changes.items():
        given = with_setting(given, name, value)
    try:
        return rescaled(TrainSpec.model_validate_json(json.dumps(given)), epochs)
    except ValidationError as invalid:
        tuned, problems = [key for key in point if key.startswith("train.")], []
        for error in invalid.errors():
            place = ".".join(map(str, ("train", *error["loc"])))
            said = f"the key '{place}' is missing" if error["type"] == "missing" else sentence(error)
            at = [key for key in tuned if len(tuned) == 1 or (error["loc"] and _meet(key, place))]
            if at:
                problems.append(_of_value(tune, at[0], point[at[0]], said, source))
            else:
                problems.append(source.problem(SPACE, f"{point_text(point)}: {said}"))
        raise SuiteError(problems) from None


def _meet(one: str, other: str) -> bool:
    """Whether one of two settings is the other one or lies within it."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


OWNERS = ("train", "head", "backbone")


def problems(
    file: SuiteFile, backbones: list[Component], heads: list[Component], source: Source, *, complete: bool
) -> list[str]:
    """Return one message with its place in the file for each problem.

    Args:
        complete: the lists have every entry of the file; otherwise a key may apply to an entry that is not there.
    """
    tune = file.tune
    if tune is None:
        return []
    if not file.heads:
        return [source.problem(("tune",), "a suite of n-grams only has nothing to tune", at_key=True)]
    found = []
    if tune.seed in file.seeds:
        message = f"the seed {tune.seed} is one of `seeds`; expected another one, so that tuning sees no trial of them"
        found.append(source.problem(("tune", "seed"), message))
    if None not in (file.train.epochs, tune.epochs) and tune.epochs > file.train.epochs:
        message = f"expected at most train.epochs = {file.train.epochs:g}, got {tune.epochs:g}"
        found.append(source.problem(("tune", "epochs"), message))
    for key in tune.space:
        owner, _, name = key.partition(".")
        components = {"head": heads, "backbone": backbones}.get(owner, [])
        if owner not in OWNERS or not name:
            message = f"unknown key '{key}'; expected train.<setting>, head.<parameter> or backbone.<parameter>"
            found.append(source.problem((*SPACE, key), message, at_key=True))
        elif owner == "train":
            found += _of_train(file, key, source)
        elif complete or any(name in parameters(each.cls) for each in components):
            found += _of_components(key, components, source)
    return found


def _of_train(file: SuiteFile, key: str, source: Source) -> list[str]:
    name = key.removeprefix("train.")
    known = [each for each in _settings(TrainSpec) if _refusal(each, file) is None]
    unknown = None if name in known else f"unknown setting '{name}' of train{nearest(name, known)}"
    twice = [f"{name} is part of {each}; tune one of the two" for each in file.tune.space if key.startswith(f"{each}.")]
    refusal = next(filter(None, (_refusal(name, file), unknown, *twice)), None)
    return [] if refusal is None else [source.problem((*SPACE, key), refusal, at_key=True)]


def _settings(annotation: Any) -> Iterator[str]:
    """The settings within a type, at any depth: of TrainSpec 'lr', 'groups', 'groups.head', 'groups.head.lr', ..."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        inside = {name: field.annotation for name, field in annotation.model_fields.items()}
    elif get_origin(annotation) is dict:
        keys, value = get_args(annotation)
        inside = dict.fromkeys(get_args(keys), value)
    else:
        for each in get_args(annotation):
            yield from _settings(each)
        return
    for name, value in inside.items():
        yield from (name, *(f"{name}.{deeper}" for deeper in _settings(value)))


def _refusal(name: str, file: SuiteFile) -> str | None:
    """Return why a setting of `train` cannot be tuned; None if it can be."""
    if name == "epochs" and file.train.epochs is None:
        return "epochs cannot be tuned together with train.tokens; give train.epochs instead"
    if name == "epochs" and file.match is not None and file.match.time is not None:
        return "epochs cannot be tuned together with match.time, which gives each head its epochs"
    if name in EvalSpec.model_fields:
        return f"{name} cannot be tuned: perplexities of different values do not compare"
    if name in DECIDES_NO_RESULT:
        return f"{name} cannot be tuned: it changes no result"
    return None


def _of_components(key: str, components: list[Component], source: Source) -> list[str]:
    owner, _, name = key.partition(".")
    having = [each for each in components if name in parameters(each.cls)]
    if not having:
        known = [known for each in components for known in parameters(each.cls)]
        message = f"no {owner} of this suite has a parameter '{name}'{nearest(name, known)}"
        return [source.problem((*SPACE, key), message, at_key=True)]
    if any(is_place(parameters(each.cls)[name]) for each in having):
        return [source.problem((*SPACE, key), f"{name} is a path, which cannot be tuned", at_key=True)]
    message = f"{name} is given here and tuned in tune.space; give it in one of the two places"
    return list(dict.fromkeys(each.problem(source, message) for each in having if name in each.spec.params))
