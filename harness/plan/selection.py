"""The option --only: select trials of a suite by conditions."""

import re
from collections.abc import Iterable
from typing import Any

from harness.errors import SuiteError, nearest
from harness.plan.parameters import resolved
from harness.plan.reader import value_of
from harness.plan.specs import ComponentSpec, TrialSpec, plain, value_text
from harness.plan.suite import Row, Suite
from harness.registry import BACKBONES, CORPORA, HEADS

_REGISTRIES = {"corpus": CORPORA, "backbone": BACKBONES, "head": HEADS}
Facts = dict[str, dict[str, list[Any]]]
PARTS = r",(?=[^,]*=)(?![^\[{]*[\]}])"  # not a comma within a value: 'head=affine softmax, rank 4', '[15, 5]'
SHOWN = 20  # values of a key that a message or the plan lists
_RESERVED = {"seed", "id", *_REGISTRIES}  # a parameter of this name needs its component: corpus.seed


def select(trials: tuple[TrialSpec, ...], only: tuple[str, ...], suite: Suite | None = None) -> tuple[TrialSpec, ...]:
    """Return the trials that meet at least one of the conditions.

    A condition has the form 'head=mos,num_mixtures=2' and is met by trials with all of its values. A key is corpus,
    backbone, head, seed, id, or a parameter of a component (also in the form 'head.dropout'). Of a
    ladder it may be size, the number of a size from 1.

    Args:
        suite: that of the trials: a component may then also be named as in its table, 'head=affine softmax, rank 16'.

    Raises: SuiteError when a key is unknown, with the keys there are, or when no trial meets a condition, with the
        values of the key.
    """
    if not only:
        return trials
    facts = facts_of(trials, suite)
    chosen = {trial for condition in only for trial in matching(facts, condition)}
    return tuple(trial for trial in trials if trial.id in chosen)


def facts_of(trials: Iterable[TrialSpec], suite: Suite | None = None) -> Facts:
    """Return for each trial id the keys that conditions can use, each with its values."""
    return {trial.id: _facts(trial, suite) for trial in trials}


def matching(facts: Facts, condition: str) -> set[str]:
    """Return the ids of the trials that meet one condition. Raises SuiteError like `select`."""
    pairs = [part.partition("=") for part in re.split(PARTS, condition)]
    keys = sorted({key for fact in facts.values() for key in fact})
    for key, equals, _ in pairs:
        if not equals:
            raise SuiteError([f"--only {condition}: expected key=value[,key=value ...]"])
        if key not in keys:
            telling = {known: values for known, values in choices(facts).items() if len(values) > 1}
            listed = "; ".join([*key_texts(telling), "id"])
            known = f"(keys: {listed}; `harness plan SUITE --keys` shows all)"
            raise SuiteError([f"--only {condition}: no trial has '{key}'{nearest(key, keys)} {known}"])
    wanted = [(key, text, _read(text)) for key, _, text in pairs]
    found = set()
    for trial, fact in facts.items():
        if all(_equal(fact.get(key), *value) for key, *value in wanted):
            found.add(trial)
    if not found:
        reason = _unmet(facts, wanted)
        raise SuiteError([f"--only {condition}: no trial of the suite meets this condition; {reason}"])
    return found


def choices(facts: Facts) -> dict[str, list[str]]:
    """Return the keys that a condition can use, without `id`, each with its values in the trials as texts.

    'head.dropout' is left out where 'dropout' means the same: where no other component has this parameter.
    """
    found: dict[str, dict[str, None]] = {kind: {} for kind in (*_REGISTRIES, "seed")}
    for fact in facts.values():
        for key, values in fact.items():
            kind, _, name = key.partition(".")
            several = len(fact.get(name, ())) > 1 or name in _RESERVED
            if key != "id" and (kind not in _REGISTRIES or not name or several):
                found.setdefault(key, {}).update(dict.fromkeys(map(value_text, values)))
    return {key: list(values) for key, values in found.items() if values}


def key_texts(found: dict[str, list[str]]) -> list[str]:
    """Return the keys as lines of text: those with several values, one in a line, then those with one value.

    For example 'head: softmax, mos' and 'with one value: corpus: ptb, d_model: 200'.
    """
    several = [f"{key}: {_listed(values)}" for key, values in found.items() if len(values) > 1]
    single = [f"{key}: {values[0]}" for key, values in found.items() if len(values) == 1]
    return [*several, *([f"with one value: {', '.join(single)}"] if single else [])]


def _listed(values: list[str]) -> str:
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return ", ".join(values[:SHOWN]) + more


def _unmet(facts: Facts, wanted: list[tuple[str, str, list[Any]]]) -> str:
    """Return why no trial meets a condition: a value that does not occur, with those that do."""
    for key, text, read in wanted:
        if not any(_equal(fact.get(key), text, read) for fact in facts.values()):
            values = dict.fromkeys(value_text(value) for fact in facts.values() for value in fact.get(key, ()))
            return f"{key} is {_listed(list(values))}"
    return "each of its values occurs, but not in one trial"


def _facts(trial: TrialSpec, suite: Suite | None) -> dict[str, list[Any]]:
    """Return the keys that a condition can use, each with its values in this trial."""
    facts: dict[str, list[Any]] = {"seed": [trial.seed], "id": [trial.id]}
    if suite is not None and (size := suite.row_of(trial).size) is not None:
        facts["size"] = [size]
    for kind, registry in _REGISTRIES.items():
        component: ComponentSpec = getattr(trial, kind)
        facts[kind] = list(
            dict.fromkeys([component.name, *([] if suite is None else [getattr(suite.row_of(trial), kind).name])])
        )
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


def chosen_rows(suite: Suite, only: tuple[str, ...]) -> list[Row]:
    """Return the rows whose tuning belongs to some conditions: those with a trial that meets them, and of a ladder the
    tuned size that the learning rate of such a row follows.

    The trial is a tuning trial of the row, or a trial of the table at any of its points: 'seed=1' is met by every row.

    Raises: SuiteError as `select` does.
    """
    met = met_rows(suite, only)
    followed = {(row.family, row.nearest) for row in met}
    return [row for row in suite.tuned_rows if row in met or (row.family, row.size) in followed]


def met_rows(suite: Suite, only: tuple[str, ...]) -> list[Row]:
    """Return all rows with a trial that meets some conditions. Raises SuiteError as `select` does."""
    met = {trial.id for trial in select(suite.possible_trials, only, suite)}
    rows = []
    for row in suite.rows:
        if any(trial.id in met for trial in row.possible_trials):
            rows.append(row)
    return rows


def chosen_tuning(suite: Suite, only: tuple[str, ...]) -> tuple[TrialSpec, ...]:
    """Return the tuning trials of `chosen_rows`."""
    return tuple(trial for row in chosen_rows(suite, only) for trial in row.tuning_trials)


def chosen_trials(suite: Suite, only: tuple[str, ...]) -> tuple[TrialSpec, ...]:
    """Return the trials of the table that meet at least one of the conditions.

    Of a suite with `tune` these may be none: the point of a row may not be chosen yet, or may be another one.

    Raises: SuiteError as `select` does.
    """
    met = {trial.id for trial in select(suite.possible_trials, only, suite)}
    return tuple(trial for trial in suite.trials if trial.id in met)
