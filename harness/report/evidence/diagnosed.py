"""What `harness diagnose` has stored of a suite. Nothing is computed here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from harness.diagnostics.diagnosing import result_of
from harness.diagnostics.diagnostic import Diagnostic, Result
from harness.errors import RecordError
from harness.records import sidecars
from harness.records.sidecars import Diagnosis
from harness.report.evidence.gather import Evidence
from harness.report.outputs import Trials


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """What is stored of one diagnostic of a suite, with one choice of settings.

    Args:
        stored: trial id -> what was stored, with a result or with the reason why there is none.
        results: trial id -> its result.
        planned: the number of trials of the suite.
    """

    diagnostic: Diagnostic
    stored: dict[str, Diagnosis]
    results: dict[str, Result]
    planned: int

    @property
    def trials(self) -> Trials:
        """The numbers of trials of which something is stored, and of planned trials."""
        return Trials(len(self.stored), self.planned)


def gathered(
    evidence: Evidence,
    diagnostics: Iterable[Diagnostic],
    settings: Callable[[Diagnostic], dict[str, int | float | str]] | None = None,
) -> list[Diagnosed]:
    """Read what is stored of a suite's finished trials.

    Args:
        settings: those of each diagnostic; None: those of its newest result.
    """
    kept = {each: _load(evidence, each) for each in evidence.records}
    found, planned = [], len(evidence.suite.trials)
    for diagnostic in diagnostics:
        of = {trial: [each for each in many if each.diagnostic == diagnostic.name] for trial, many in kept.items()}
        newest = max((each for many in of.values() for each in many), key=lambda each: each.taken, default=None)
        if newest is None:
            continue
        wanted = newest.settings if settings is None else settings(diagnostic)
        stored = {trial: each for trial, many in of.items() for each in many if each.settings == wanted}
        results = {trial: result_of(each, diagnostic) for trial, each in stored.items()}
        results = {trial: result for trial, result in results.items() if result is not None}
        found.append(Diagnosed(diagnostic=diagnostic, stored=stored, results=results, planned=planned))
    return found


def _load(evidence: Evidence, trial: str) -> tuple[Diagnosis, ...]:
    try:
        return sidecars.DIAGNOSES.load(evidence.runs, evidence.records[trial]) or ()
    except RecordError as damaged:
        evidence.warn(str(damaged))
        return ()
