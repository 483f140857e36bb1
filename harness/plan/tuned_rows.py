"""The rows of a suite with `tune`: for each row its points, with the trials that try them and those
that may follow.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, get_args, get_origin

from pydantic import ValidationError

from harness.errors import SuiteError, nearest
from harness.plan import ladder_rows
from harness.plan.components import MAX_TRIALS, Component, Construction
from harness.plan.expansion import trials_of
from harness.plan.lengths import rescaled
from harness.plan.parameters import checked, is_place, parameters, sentence
from harness.plan.reader import Problems
from harness.plan.specs import DECIDES_NO_RESULT, EvalSpec, Strict, TrainSpec, TrialSpec, canonical
from harness.plan.suite import Candidate, Row
from harness.plan.suite_file import SuiteFile
from harness.plan.tuning import Point, TuneSpec, point_text, points, with_setting

SPACE = ("tune", "space")


@dataclass(frozen=True, slots=True)
class TunedComponent(Component):
    """A component with parameters of a point. The place of its problems is the space."""

    def report(self, problems: Problems, message: str) -> None:
        problems.add(SPACE, f"{self.spec}: {message}")


def with_candidates(file: SuiteFile, rows: list[Row], problems: Problems) -> list[Row]:
    """Return the rows of a suite with their candidates: the points of the space without the keys
    that do not apply to the row. Points that are equal then are one. The values of a point take the
    place of those of `train`.

    Raises: SuiteError when a point cannot be built or changes the number of parameters of a matched
        model, and when two rows are equal.
    """
    drawn, found = points(file.tune), []
    known: set[str] = set()  # ids of trials
    if len(rows) * len(drawn) * (1 + len(file.seeds)) > MAX_TRIALS:
        problems.add(("tune",), f"expands to more than {MAX_TRIALS} trials, at most")
        problems.raise_if_any()
    for row in rows:
        if not ladder_rows.is_tuned(file, row):
            found.append(ladder_rows.following(row, rows, file.ladder, partial(_at_rate, file, row)))
            continue
        candidates: dict[str, Candidate | None] = {}  # None: the point has a problem
        for drawn_point in drawn:
            of_point = Problems(problems.source)
            try:
                point = _applicable(file.tune, drawn_point, row, of_point)
                key = canonical(point)
                if key not in candidates:
                    candidates[key] = None
                    candidates[key] = _candidate(file, row, point, known, of_point)
            except SuiteError:  # the other points are checked, too
                problems.update(of_point)
        possible = tuple(each for each in candidates.values() if each is not None)
        found.append(replace(row, tune=file.tune, candidates=possible))
    problems.raise_if_any()
    return found


def _at_rate(file: SuiteFile, row: Row, rate: float) -> Candidate:
    """Return a row at a learning rate that tuning has not tried for it."""
    train = row.train.model_copy(update={"lr": rate})
    trials = trials_of(row, row.backbone, row.head, train, ladder_rows.seeds_of(file, row))
    parts = {"backbone": row.backbone, "head": row.head, "params": row.params}
    return Candidate(point={}, **parts, settled=row.settled, trials=tuple(trials))


def _applicable(tune: TuneSpec, point: Point, row: Row, problems: Problems) -> Point:
    """Return the part of a point that applies to a row, with values in the types of its parameters.

    Raises: SuiteError for values of another type.
    """
    found = {}
    for key, value in point.items():
        owner, _, name = key.partition(".")
        if owner == "train":  # checked with all other settings, by TrainSpec
            found[key] = value
            continue
        component = getattr(row, owner)
        parameter = parameters(component.cls).get(name)
        if parameter is None:
            continue
        try:
            found[key] = checked(parameter, value)
        except ValueError as error:
            reason = f"{error} (for {component.spec.name})"
            _add_of_value(tune, key, value, reason, problems)
    problems.raise_if_any()
    return found


def _add_of_value(tune: TuneSpec, key: str, value: Any, reason: str, problems: Problems) -> None:
    """Add a problem of one value of an axis, at its place; of a range, at that of the range."""
    axis, place = tune.space[key], (*SPACE, key)
    if axis.range is None:
        within = () if axis.grid is not None else ("choice",)
        problems.add((*place, *within, axis.listed.index(value)), reason)
        return
    # Without the value: so it is one problem of the range and not one of each point.
    message = reason.partition(", got")[0]
    if "integer" in message:
        message += "; give whole numbers as a list or a choice"
    problems.add((*place, "uniform" if axis.log_uniform is None else "log_uniform"), message)


def _candidate(
    file: SuiteFile,
    row: Row,
    point: Point,
    known: set[str],
    problems: Problems,
) -> Candidate:
    """Return a row at a point, with its trials, and add the ids of these to `known`."""
    train = _train(file.tune, row.train, point, problems)
    at_point = _at(row, point, problems)
    head = row.head.spec
    if file.match is not None and at_point.params != row.params:
        change = f"{point_text(point)} changes the number of parameters of {head}"
        problems.add(SPACE, f"{change}, which `match` fixes")
        problems.raise_if_any()
    lengths = file.tune.lengths(train.epochs)
    if lengths[-1] > train.epochs:
        fault = f"{head} is trained for {train.epochs:g} epochs, got {lengths[-1]:g} for its tuning"
        problems.add(("tune", "epochs"), fault)
        problems.raise_if_any()
    parts = row, at_point.backbone, at_point.head
    tuning: list[TrialSpec] = []
    for length in dict.fromkeys(lengths):  # two lengths of a short training may be equal
        tuning += trials_of(*parts, rescaled(train, length), [file.tune.seed])
    finals = tuple(trials_of(*parts, train, ladder_rows.seeds_of(file, row)))
    ids = {trial.id for trial in tuning}
    if len(ids) < len(tuning) or not ids.isdisjoint(known):
        row.head.report(problems, f"the row of '{tuning[0]}' is in the suite twice")
        problems.raise_if_any()
    known.update(trial.id for trial in (*tuning, *finals))
    return replace(at_point, tuning_trials=tuple(tuning), trials=finals)


def _at(row: Row, point: Point, problems: Problems) -> Candidate:
    """Return a row at a point without trials, built once to count its parameters."""
    made = {"backbone": row.backbone, "head": row.head}
    changes = {owner: _parameters_of(owner, point) for owner in made}
    if not any(changes.values()):  # a point of `train` only changes no model
        return Candidate(point=point, **made, params=row.params, settled=row.settled)
    for owner, params in changes.items():
        old = made[owner]
        values = {field.name: getattr(old, field.name) for field in fields(old)}
        values["spec"] = old.spec.model_copy(update={"params": {**old.spec.params, **params}})
        made[owner] = TunedComponent(**values)
    construction = Construction(problems, batch=None if row.flops is None else row.train.batch_shape)
    construction.check([row.facts.vocab_size], [made["backbone"]], [made["head"]])
    problems.raise_if_any()
    if row.flops is not None and row.flops not in construction.flops.values():
        change = f"{point_text(point)} changes the FLOPs of {row.head.spec}"
        problems.add(SPACE, f"{change}, by which `match` and a ladder give and compare epochs")
        problems.raise_if_any()
    ((params, settled),) = construction.models.values()
    return Candidate(point=point, **made, params=params, settled=settled)


def _parameters_of(owner: str, point: Point) -> dict[str, Any]:
    found = {}
    for key, value in point.items():
        first, _, name = key.partition(".")
        if first == owner:
            found[name] = value
    return found


def _train(tune: TuneSpec, train: TrainSpec, point: Point, problems: Problems) -> TrainSpec:
    """Return the settings of a point, with the schedule of the suite scaled to its epochs."""
    changes = _parameters_of("train", point)
    epochs = changes.pop("epochs", train.epochs)
    given = train.model_dump(mode="json", exclude_defaults=True)
    for name, value in changes.items():
        given = with_setting(given, name, value)
    try:
        return rescaled(TrainSpec.model_validate_json(json.dumps(given)), epochs)
    except ValidationError as invalid:
        tuned = [key for key in point if key.startswith("train.")]
        for error in invalid.errors():
            place = ".".join(map(str, ("train", *error["loc"])))
            is_missing = error["type"] == "missing"
            message = f"the key '{place}' is missing" if is_missing else sentence(error)
            # An error of several settings together has no place: then the point is named.
            at = [key for key in tuned if error["loc"] and _meet(key, place)]
            if len(tuned) == 1:
                at = tuned
            if at:
                _add_of_value(tune, at[0], point[at[0]], message, problems)
            else:
                problems.add(SPACE, f"{point_text(point)}: {message}")
        problems.raise_if_any()
        raise


def _meet(one: str, other: str) -> bool:
    """Whether one of two settings is the other one or lies within it."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


OWNERS = ("train", "head", "backbone")


def check(
    file: SuiteFile,
    backbones: list[Component],
    heads: list[Component],
    problems: Problems,
    *,
    complete: bool,
) -> None:
    """Check the keys of `tune` against the rest of the file.

    Args:
        complete: the lists have every entry of the file; otherwise a key may apply to an entry that
            is not there.
    """
    tune = file.tune
    if tune is None:
        return
    if not file.heads:
        problems.add(("tune",), "a suite of n-grams only has nothing to tune", at_key=True)
        return
    if tune.seed in file.seeds:
        fault = f"the seed {tune.seed} is one of `seeds`"
        message = f"{fault}; expected another one, so that tuning sees no trial of them"
        problems.add(("tune", "seed"), message)
    if None not in (file.train.epochs, tune.epochs) and tune.epochs > file.train.epochs:
        message = f"expected at most train.epochs = {file.train.epochs:g}, got {tune.epochs:g}"
        problems.add(("tune", "epochs"), message)
    for key in tune.space:
        owner, _, name = key.partition(".")
        components = {"head": heads, "backbone": backbones}.get(owner, [])
        if owner not in OWNERS or not name:
            expected = "train.<setting>, head.<parameter> or backbone.<parameter>"
            problems.add((*SPACE, key), f"unknown key '{key}'; expected {expected}", at_key=True)
        elif owner == "train":
            _check_of_train(file, key, problems)
        elif complete or any(name in parameters(each.cls) for each in components):
            _check_of_components(key, components, problems)


def _check_of_train(file: SuiteFile, key: str, problems: Problems) -> None:
    name = key.removeprefix("train.")
    refusal = _refusal(name, file)
    if refusal is None:
        known = [each for each in _settings(TrainSpec) if _refusal(each, file) is None]
        outer = [each for each in file.tune.space if key.startswith(f"{each}.")]
        if name not in known:
            refusal = f"unknown setting '{name}' of train{nearest(name, known)}"
        elif outer:
            refusal = f"{name} is part of {outer[0]}; tune one of the two"
    if refusal is not None:
        problems.add((*SPACE, key), refusal, at_key=True)


def _settings(annotation: Any) -> Iterator[str]:
    """The settings within a type, at any depth: of TrainSpec 'lr', 'groups', 'groups.head', ..."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        inside = {name: field.annotation for name, field in annotation.model_fields.items()}
    elif get_origin(annotation) is dict:
        keys, value = get_args(annotation)
        inside = dict.fromkeys(get_args(keys), value)
    else:
        for each in get_args(annotation):  # of `X | None`
            yield from _settings(each)
        return
    for name, value in inside.items():
        yield name
        for deeper in _settings(value):
            yield f"{name}.{deeper}"


def _refusal(name: str, file: SuiteFile) -> str | None:
    """Return why a setting of `train` cannot be tuned; None if it can be."""
    if name == "epochs" and file.train.epochs is None:
        return "epochs cannot be tuned together with train.tokens; give train.epochs instead"
    if name == "epochs" and file.match is not None and file.match.by_epochs:
        return "epochs cannot be tuned together with match, which gives each head its epochs"
    if name in EvalSpec.model_fields:
        return f"{name} cannot be tuned: perplexities of different values do not compare"
    if name in DECIDES_NO_RESULT:
        return f"{name} cannot be tuned: it changes no result"
    return None


def _check_of_components(key: str, components: list[Component], problems: Problems) -> None:
    owner, _, name = key.partition(".")
    owners = [each for each in components if name in parameters(each.cls)]
    if not owners:
        known: list[str] = []
        for each in components:
            known += parameters(each.cls)
        message = f"no {owner} of this suite has a parameter '{name}'{nearest(name, known)}"
        problems.add((*SPACE, key), message, at_key=True)
    elif any(is_place(parameters(each.cls)[name]) for each in owners):
        # Paths enter no trial's id: two points would be one trial (harness/plan/parameters.py).
        problems.add((*SPACE, key), f"{name} is a path, which cannot be tuned", at_key=True)
    else:
        for each in owners:
            if name in each.spec.params:
                fault = f"{name} is given here and tuned in tune.space"
                each.report(problems, f"{fault}; give it in one of the two places")
