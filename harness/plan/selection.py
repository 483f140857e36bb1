"""The option --only: select trials of a suite by conditions."""

from collections.abc import Iterable
from typing import Any

from harness.errors import SuiteError, nearest
from harness.plan.canonical import plain
from harness.plan.parameters import resolved
from harness.plan.reader import value_of
from harness.plan.specs import ComponentSpec, TrialSpec
from harness.registry import BACKBONES, CORPORA, HEADS

_REGISTRIES = {"corpus": CORPORA, "backbone": BACKBONES, "head": HEADS}
Facts = dict[str, dict[str, list[Any]]]
_RESERVED = {"seed", "id", *_REGISTRIES}  # a parameter of this name needs its component: corpus.seed


def select(trials: tuple[TrialSpec, ...], only: tuple[str, ...]) -> tuple[TrialSpec, ...]:
    """Return the trials that meet at least one of the conditions.

    A condition has the form 'head=mos,num_mixtures=2' and is met by trials with all of its values. A key is corpus,
    backbone, head, seed, id, or a parameter of a component (also in the form 'head.dropout').

    Raises: SuiteError when a key is unknown, or no trial meets a condition.
    """
    if not only:
        return trials
    facts = facts_of(trials)
    chosen = {trial for condition in only for trial in matching(facts, condition)}
    return tuple(trial for trial in trials if trial.id in chosen)


def facts_of(trials: Iterable[TrialSpec]) -> Facts:
    """Return for each trial id the keys that conditions can use, each with its values."""
    return {trial.id: _facts(trial) for trial in trials}


def matching(facts: Facts, condition: str) -> set[str]:
    """Return the ids of the trials that meet one condition. Raises SuiteError like `select`."""
    pairs = [part.partition("=") for part in _parts(condition)]
    keys = sorted({key for fact in facts.values() for key in fact})
    for key, equals, _ in pairs:
        if not equals:
            raise SuiteError([f"--only {condition}: expected key=value[,key=value ...]"])
        if key not in keys:
            raise SuiteError([f"--only {condition}: no trial has '{key}'{nearest(key, keys)}"])
    wanted = [(key, text, _read(text)) for key, _, text in pairs]
    found = {trial for trial, fact in facts.items() if all(_equal(fact.get(key), *value) for key, *value in wanted)}
    if not found:
        raise SuiteError([f"--only {condition}: no trial of the suite meets this condition"])
    return found


def _parts(condition: str) -> list[str]:
    """Split 'head=doc,components=[15, 5]' into its two parts: a comma within brackets is part of a value."""
    parts, depth = [""], 0
    for character in condition:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _facts(trial: TrialSpec) -> dict[str, list[Any]]:
    """Return the keys that a condition can use, each with its values in this trial."""
    facts: dict[str, list[Any]] = {"seed": [trial.seed], "id": [trial.id]}
    for kind, registry in _REGISTRIES.items():
        component: ComponentSpec = getattr(trial, kind)
        facts[kind] = [component.name]
        for name, value in resolved(registry.get(component.name), component.params).items():
            if name not in _RESERVED:
                facts.setdefault(name, []).append(value)
            facts[f"{kind}.{name}"] = [value]
    return facts


def _read(text: str) -> list[Any]:
    """Return the value of a condition read as YAML, in a list; an empty list if it is not valid YAML."""
    try:
        return [value_of(text)]
    except ValueError:
        return []


def _equal(values: list[Any] | None, text: str, read: list[Any]) -> bool:
    if values is None or text in map(str, values):
        return values is not None
    return any(
        plain(value) == plain(wanted) and isinstance(value, bool) == isinstance(wanted, bool)
        for value in values
        for wanted in read
    )
