"""Commands that train something again: a row, a trial, one that is to be verified, or what was made by earlier code."""

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.code import hashes
from harness.errors import SuiteError
from harness.plan.overrides import APPENDS
from harness.plan.reader import shown
from harness.plan.selection import Facts, facts_of, matching
from harness.plan.specs import TrialSpec, value_text
from harness.plan.suite import Suite
from harness.records.record import TrialRecord
from harness.report.grouping import grouped
from harness.report.row_facts import REGISTRIES, RowFacts
from harness.report.versions import changed

HEAD_ADDED = f"heads{APPENDS}"


def of_rows(suite: Suite, lines: list[RowFacts]) -> list[str]:
    """The command of each row, which selects exactly its trials.

    For example 'harness run suites/x.yaml --only head=mos,head.num_mixtures=5': the values that distinguish the row
    from others, or the ids of its trials if the values cannot be written as conditions.
    """
    facts = facts_of([line.spec for line in lines])  # the trials of a row differ only in their seed
    parts = [_conditions(lines, kind) for kind in REGISTRIES]
    conditions = [",".join(filter(None, each)) for each in zip(*parts, strict=True)]
    return [
        of_trials(suite, line.ids, [condition] if _fits(facts, condition, line) else None)
        for line, condition in zip(lines, conditions, strict=True)
    ]


def of_trials(suite: Suite, ids: Iterable[str], only: list[str] | None = None, *options: str) -> str:
    """The command for some trials, by `only` or else by their ids. An empty condition selects all trials."""
    ids = list(ids)
    conditions = [f"id={each}" for each in ids] if only is None else only
    given = _given(suite, set(ids))
    changed = {each.partition("=")[0] for each in options}  # by options, which replace what was given
    changes = [part for each in given if each.partition("=")[0] not in changed for part in ("--set", each)]
    picked = [part for condition in conditions if condition for part in ("--only", condition)]
    return shlex.join(["harness", "run", _place(suite), *changes, *picked, *options])


def _given(suite: Suite, ids: set[str]) -> list[str]:
    """The --set of a suite, without the heads that were appended to it and have none of some trials."""
    added = [change for change in suite.overrides if change[0] == HEAD_ADDED]
    rows = [row for row in suite.rows if row.head.place[:1] == ("heads",)]
    first, used = max((row.head.place[1] for row in rows), default=-1) + 1 - len(added), set()
    for row in rows:
        if ids.intersection(trial.id for trial in row.possible_trials):
            used.add(row.head.place[1] - first)
    kept = [change for change in suite.overrides if change[0] != HEAD_ADDED]
    kept += [change for number, change in enumerate(added) if number in used]
    return [f"{key}={value}" for key, value, _ in kept]


def verifying(line: RowFacts) -> str:
    """The command that trains one ok trial of a row again, and compares it with its record; '' without
    such a trial.
    """
    if not line.ok:
        return ""
    results = hashlib.sha256("".join(each.model_dump_json() for each in line.ok).encode())
    return shlex.join(["harness", "verify", by_lot([record.id for record in line.ok], results.digest()), "--retrain"])


def by_lot(trials: Sequence[str], digest: bytes) -> str:
    """Draw one of some trials by the digest of their results: everybody draws the same one."""
    return trials[int.from_bytes(digest, "big") % len(trials)]


def _place(suite: Suite) -> str:
    """The suite as a command takes it; of an absolute path, only the folder and the file."""
    given = Path(shown(suite.path))
    return str(Path(*given.parts[-2:]) if given.is_absolute() else given)


def _conditions(lines: list[RowFacts], kind: str) -> list[str]:
    """The condition of each row on one of its components: its name if there are several, and the parameters in which
    those of its name differ.
    """
    specs = [getattr(line.spec, kind) for line in lines]
    named = {str(spec): (spec.name, line.params_of(kind)) for spec, line in zip(specs, lines, strict=True)}
    found = {}
    for key, (name, params) in named.items():
        alike = [each for other, each in named.values() if other == name]
        about = [f"{kind}={name}"] if len(named) > 1 else []
        for parameter, value in params.items():
            if len({value_text(other.get(parameter)) for other in alike}) > 1:
                about.append(f"{kind}.{parameter}={value_text(value)}")
        found[key] = ",".join(about)
    return [found[str(spec)] for spec in specs]


def _fits(facts: Facts, condition: str, line: RowFacts) -> bool:
    if not condition:
        return len(facts) == 1
    try:
        return matching(facts, condition) == {line.spec.id}
    except SuiteError:
        return False


def sentences(suite: Suite, chosen: Iterable[TrialSpec], found: Mapping[str, TrialRecord], *options: str) -> list[str]:
    """A sentence for each file that changed after finished trials were made: how many trials, and what to do.

    Args:
        options: of the command that trains them again, in addition to the suite, --set, --only and --force.
    """
    specs = {spec.id: spec for spec in chosen}
    outdated = changed(found[trial] for trial in specs if trial in found)
    pairs = ((kind, specs[trial]) for trial, kinds in outdated.items() for kind in kinds)
    trials = grouped(((kind, getattr(spec, kind).name), spec) for kind, spec in pairs)
    unfinished = {trial for trial in specs if trial not in found or found[trial].status != "ok"}
    said = []
    for (kind, name), of in trials.items():
        these, them = (f"these {len(of)} records were", "them") if len(of) > 1 else ("this record was", "it")
        ids = [spec.id for spec in of]
        command = of_trials(suite, ids, _condition(suite, ids, f"{kind}={name}", unfinished), "--force", *options)
        said.append(
            f"{hashes.place(kind, name)} changed since {these} made: `{command}` trains {them} again, `--keep` "
            f"keeps {them}"
        )
    return said


def _condition(suite: Suite, ids: list[str], condition: str, unfinished: set[str]) -> list[str] | None:
    """'head=mos' if that selects these trials, and otherwise only unfinished ones; None: the ids are needed."""
    try:
        picked = matching(facts_of((*suite.tuning_trials, *suite.trials)), condition)
    except SuiteError:
        return None
    wanted = set(ids)
    return [condition] if wanted <= picked <= wanted | unfinished else None
