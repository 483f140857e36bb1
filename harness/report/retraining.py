"""Commands that train something again: a row, a trial, or what was made by earlier code."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.code import fingerprints
from harness.errors import SuiteError
from harness.plan.loaded_suite import Suite
from harness.plan.parameters import resolved
from harness.plan.reader import shown
from harness.plan.selection import Facts, facts_of, matching
from harness.plan.specs import ComponentSpec, TrialSpec, value_text
from harness.records.record import TrialRecord
from harness.registry import BACKBONES, CORPORA, HEADS
from harness.report.table_rows import Row
from harness.report.versions import changed

_REGISTRIES = {"corpus": CORPORA, "backbone": BACKBONES, "head": HEADS}


def of_rows(suite: Suite, lines: list[Row]) -> list[str]:
    """The command of each row, which selects exactly its trials.

    For example 'harness run suites/x.yaml --only head=mos,head.num_mixtures=5': the values that distinguish the row
    from others, or the ids of its trials if the values cannot be written as conditions.
    """
    first = [line.trials[0] for line in lines]
    facts = facts_of(first)  # the trials of a row differ only in their seed
    conditions = {
        kind: _conditions({str(getattr(trial, kind)): getattr(trial, kind) for trial in first}, kind)
        for kind in _REGISTRIES
    }
    commands = []
    for line in lines:
        condition = ",".join(
            part for kind in _REGISTRIES for part in conditions[kind][str(getattr(line.trials[0], kind))]
        )
        commands.append(of_trials(suite, line.trials, [condition] if _fits(facts, condition, line) else None))
    return commands


def of_trials(suite: Suite, trials: Iterable[TrialSpec], only: list[str] | None = None, *options: str) -> str:
    """The command for some trials, by `only` or else by their ids. An empty condition selects all trials."""
    conditions = [f"id={trial.id}" for trial in trials] if only is None else only
    changes = [part for key, value, _ in suite.overrides for part in ("--set", f"{key}={value}")]
    picked = [part for condition in conditions if condition for part in ("--only", condition)]
    return shlex.join(["harness", "run", _place(suite), *changes, *picked, *options])


def _place(suite: Suite) -> str:
    """The suite as a command takes it; of an absolute path, only the folder and the file."""
    given = Path(shown(suite.path))
    return str(Path(*given.parts[-2:]) if given.is_absolute() else given)


def _conditions(specs: dict[str, ComponentSpec], kind: str) -> dict[str, list[str]]:
    """str(spec) -> its conditions: its name if there are several specs, and the parameters in which specs of that name
    differ.
    """
    registry, conditions = _REGISTRIES[kind], {}
    for key, spec in specs.items():
        alike = [resolved(registry.get(spec.name), other.params) for other in specs.values() if other.name == spec.name]
        full = resolved(registry.get(spec.name), spec.params)
        differing = [name for name in full if len({value_text(params.get(name)) for params in alike}) > 1]
        name = [f"{kind}={spec.name}"] if len(specs) > 1 else []
        conditions[key] = name + [f"{kind}.{each}={value_text(full[each])}" for each in differing]
    return conditions


def _fits(facts: Facts, condition: str, line: Row) -> bool:
    if not condition:
        return len(facts) == 1
    try:
        return matching(facts, condition) == {line.trials[0].id}  # guard: command-fits -> return True
    except SuiteError:
        return False


def sentences(suite: Suite, chosen: Iterable[TrialSpec], found: Mapping[str, TrialRecord], *options: str) -> list[str]:
    """A sentence for each file that changed after finished trials were made: how many trials, and what to do.

    Args:
        options: of the command that trains them again, in addition to the suite, --set, --only and --force.
    """
    specs = {spec.id: spec for spec in chosen}
    outdated = changed(found[trial] for trial in specs if trial in found)
    trials: dict[tuple[str, str], list[TrialSpec]] = {}
    for trial, kinds in outdated.items():
        for kind in kinds:
            trials.setdefault((kind, getattr(specs[trial], kind).name), []).append(specs[trial])
    unfinished = {trial for trial in specs if trial not in found or found[trial].status != "ok"}
    return [
        f"{fingerprints.code_of(kind, name)} changed since {_these(len(of))} made: "
        f"`{of_trials(suite, of, _condition(suite, of, f'{kind}={name}', unfinished), '--force', *options)}` "
        f"trains {_them(len(of))} again, `--keep` keeps {_them(len(of))}"
        for (kind, name), of in trials.items()
    ]


def _condition(suite: Suite, trials: list[TrialSpec], condition: str, unfinished: set[str]) -> list[str] | None:
    """'head=mos' if that selects these trials, and otherwise only unfinished ones; None: the ids are needed."""
    try:
        picked = matching(facts_of((*suite.tuning_trials, *suite.trials)), condition)
    except SuiteError:
        return None
    wanted = {trial.id for trial in trials}
    return [condition] if wanted <= picked <= wanted | unfinished else None  # guard: command-trains-only-that always


def _these(number: int) -> str:
    return f"these {number} records were" if number > 1 else "this record was"


def _them(number: int) -> str:
    return "them" if number > 1 else "it"
