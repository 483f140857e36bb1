"""Runs diagnostics on the finished trials of a suite, and keeps their results beside the records.

A result that is stored already, of the same weights, settings and code, is not computed again. Each result is written
as soon as it is computed, so an interrupted run goes on where it was.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

import harness
from harness.code import hashes
from harness.containment import contained, first_line
from harness.corpora.corpus import Corpus
from harness.diagnostics.diagnostic import Diagnostic, NotDefined, Result, Settings
from harness.errors import HarnessError, RecordError, StorageError
from harness.machine import environment
from harness.model import components
from harness.records import sidecars, store
from harness.records.record import TrialRecord
from harness.records.sidecars import Diagnosis
from harness.training.checkpoint import BEST
from harness.trial.trained import Trained, rebuilt, tokens_of

Watch = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be computed. `runs`: the folder of a suite's trials."""

    runs: Path
    diagnostics: Sequence[Diagnostic]
    settings: Settings
    data: Path
    device: torch.device


@dataclass(slots=True)
class DiagnosisOutcome:
    """What was done.

    Args:
        computed, known: the number of results that were computed now, and of those that were stored already.
        without_weights: ids of trials whose results are missing because they have no weights.
        failed: a sentence for each trial or result that an error prevented.
    """

    computed: int = 0
    known: int = 0
    without_weights: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def diagnose(
    request: Request, records: Iterable[TrialRecord], watch: Watch = lambda done, total, what: None
) -> DiagnosisOutcome:
    """Compute the missing results of finished trials. Records that are not ok are left out.

    Args:
        watch: called before each result with the number of those that are done, the number of all that are missing, and
            what is computed; and at the end.
    Raises: StorageError when a result cannot be written.
    """
    outcome, missing = DiagnosisOutcome(), []
    for record in (each for each in records if each.status == "ok"):
        wanted = [each for each in request.diagnostics if not _is_stored(request, record, each)]
        outcome.known += len(request.diagnostics) - len(wanted)
        if wanted and not (store.folder(request.runs, record.id) / BEST).is_file():
            outcome.without_weights.append(record.id)
        elif wanted:
            missing.append((record, wanted))
    missing.sort(key=lambda each: str(each[0].spec.corpus))  # each corpus is loaded once
    total, done = sum(len(wanted) for _, wanted in missing), 0
    corpora: dict[str, Corpus] = {}
    for record, wanted in missing:
        named = f"{record.spec.head}, seed {record.spec.seed}"
        watch(done, total, named)
        subject = _tried(outcome, record, partial(_subject, request, record, corpora))
        for each in wanted:
            watch(done, total, f"{named}: {each.name}")
            made = subject and _tried(outcome, record, partial(_diagnosis, request, subject, each))
            if made is not None:
                sidecars.add_diagnosis(request.runs, record, made)
                outcome.computed += 1
            done += 1
    if total:
        watch(total, total, "")
    return outcome


def _is_stored(request: Request, record: TrialRecord, diagnostic: Diagnostic) -> bool:
    """Whether there is a result of a diagnostic with these settings and the present code."""
    try:
        found = sidecars.DIAGNOSES.load(request.runs, record) or ()
    except RecordError:  # computed again, and replaced
        return False
    settings, code = request.settings.of(diagnostic), hashes.of_module(diagnostic.module)
    return any(each.answers(diagnostic.name, settings) and each.code == code for each in found)


def result_of(found: Diagnosis, diagnostic: Diagnostic) -> Result | None:
    """The result in what is stored; None if the diagnostic was refused, or if it was stored by code of another form."""
    if found.refused:
        return None
    try:
        return diagnostic.result.model_validate_json(json.dumps(found.content))
    except ValidationError:
        return None


def _subject(request: Request, record: TrialRecord, corpora: dict[str, Corpus]) -> Trained:
    """The model of a trial and its corpus. `corpora` holds the last corpus that was loaded."""
    name = str(record.spec.corpus)
    if name not in corpora:
        corpora.clear()
        corpora[name] = tokens_of(record.spec, request.data).to(request.device)
    return rebuilt(record, store.folder(request.runs, record.id) / BEST, corpora[name], request.device)


def _diagnosis(request: Request, subject: Trained, diagnostic: Diagnostic) -> Diagnosis:
    began, content, refused = time.perf_counter(), {}, ""
    try:
        with contained(components(subject.spec)):
            content = diagnostic.compute(subject, request.settings).model_dump(mode="json")
    except NotDefined as reason:
        refused = str(reason)
    return Diagnosis(
        diagnostic=diagnostic.name,
        settings=request.settings.of(diagnostic),
        code=hashes.of_module(diagnostic.module),
        refused=refused,
        content=content,
        device=environment.device_name(request.device),
        threads=torch.get_num_threads(),
        torch=str(torch.__version__),
        harness=harness.__version__,
        commit=environment.commit(),
        taken=environment.now(),
        seconds=round(time.perf_counter() - began, 3),
    )


def _tried(outcome: DiagnosisOutcome, record: TrialRecord, action: Callable[[], Any]) -> Any:
    """What an action returns; None if it raised an exception, of which the outcome has a sentence then."""
    try:
        return action()
    except StorageError:
        raise
    except Exception as error:  # of any kind: it may come from the code of a component
        sentence = str(error) if isinstance(error, HarnessError) else first_line(error)
        outcome.failed.append(f"{record.spec} ({record.id}): {sentence}")
        return None
