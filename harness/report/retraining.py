"""Sentences on finished trials whose code has changed since, with the command that trains them again."""

from collections.abc import Iterable, Mapping

from harness.code import fingerprints
from harness.errors import SuiteError
from harness.plan.loaded_suite import Suite
from harness.plan.selection import facts_of, matching
from harness.plan.specs import TrialSpec
from harness.records.record import TrialRecord
from harness.report import reproduce
from harness.report.evidence.versions import changed


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
        f"`{reproduce.of_trials(suite, of, _condition(suite, of, f'{kind}={name}', unfinished), '--force', *options)}` "
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
