"""--only: which trials of a suite a command is about."""

from collections.abc import Iterable
from typing import Any

from harness.errors import SuiteError
from harness.plan.identity import plain
from harness.plan.parameters import resolved
from harness.plan.reader import value_of
from harness.plan.specs import ComponentSpec, TrialSpec
from harness.registry import BACKBONES, CORPORA, HEADS, nearest

_REGISTRIES = {"corpus": CORPORA, "backbone": BACKBONES, "head": HEADS}
Facts = dict[str, dict[str, list[Any]]]
_RESERVED = {"seed", "id", *_REGISTRIES}  # a corpus' own seed is corpus.seed


def select(trials: tuple[TrialSpec, ...], only: tuple[str, ...]) -> tuple[TrialSpec, ...]:
    """The trials that meet any of the conditions: 'head=mos,num_mixtures=2' asks for both, a second --only for either.

    A key is corpus, backbone, head, seed, id, or a parameter of a component (also as 'head.dropout').
    Raises: SuiteError when a key is unknown, or a condition picks nothing.
    """
    if not only:
        return trials
    facts = facts_of(trials)
    chosen = {trial for condition in only for trial in matching(facts, condition)}
    return tuple(trial for trial in trials if trial.id in chosen)


def facts_of(trials: Iterable[TrialSpec]) -> Facts:
    """All that conditions can name, of each trial, by its id."""
    return {trial.id: _facts(trial) for trial in trials}


def matching(facts: Facts, condition: str) -> set[str]:
    """The trials that meet one condition. Raises SuiteError as `select` does."""
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
        raise SuiteError([f"--only {condition}: no trial of the suite is like that"])
    return found


def _parts(condition: str) -> list[str]:
    """'head=doc,components=[15, 5]' -> its two parts: a comma within brackets belongs to a value."""
    parts, depth = [""], 0
    for character in condition:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _facts(trial: TrialSpec) -> dict[str, list[Any]]:
    """Everything a condition can name, each with the values it has in this trial."""
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
    """What a condition's value may stand for besides its own text."""
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
