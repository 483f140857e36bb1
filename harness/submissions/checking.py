"""All checks of a submission, in order: those that execute nothing of it first."""

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import plan
from harness.submissions import confined, consistency, hidden_text, released, source_rules
from harness.submissions.archive import Submission, unpacked
from harness.submissions.confined import Job, Run
from harness.submissions.inside import AGAIN, CODE, CONFORMANCE, PLAN
from harness.submissions.likeness import NAME as LIKENESS
from harness.submissions.outcomes import Check, is_refused, judged
from harness.trial.setup import fetch_sources

SECONDS = 600.0  # of all checks that import the source, without the second training
STARTS = 300.0  # seconds: what a second training takes beside its minutes, on any machine
MINUTES = 30.0
FORMAT, SOURCE = "format", "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a submission is checked.

    Args:
        minutes: after which a second training is ended; the curve so far is compared.
        training: train a trial again.
        lot: of a second party, a random text, so that nobody can know before which trial it draws.
        run: how a job that executes the source is run.
    """

    data: Path
    minutes: float = MINUTES
    training: bool = True
    lot: str = ""
    run: Run = field(default=confined.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of all checks.

    Args:
        digest: SHA-256 of the file, in hexadecimal digits.
        trial: the trial that was drawn; '' where none was.
    """

    suite: str
    head: str
    digest: str
    trial: str
    checks: tuple[Check, ...]
    lot: str = ""

    @property
    def refused(self) -> bool:
        return is_refused(list(self.checks))

    @property
    def verdict(self) -> str:
        """That of the second training; 'not checked' without one."""
        return next((each.verdict for each in self.checks if each.verdict), "not checked")


def checked(place: Path, options: Options) -> Checked:
    """Check a file. Raises: RecordError when it is no submission; CorpusError when its text cannot be read."""
    confined.refuse_elsewhere()
    with tempfile.TemporaryDirectory(prefix="harness-submission-") as folder:
        submission = unpacked(place, Path(folder).resolve())
        card = submission.card
        suite = released.suite_file(card.suite)
        checks = [Check(FORMAT, "ok", f"{place.stat().st_size:,} bytes, with card and records, of {card.suite}")]
        found, of_records = consistency.read_records(submission.records, card.suite)
        checks.append(of_records)
        others = [each for each in released.records_of(card.suite) if each.status == "ok"]
        if found:
            checks.append(consistency.plausibility(found, card, others))
            checks.append(consistency.certificates(found))
            checks.append(consistency.texts(found, others))
        checks.append(_source(submission))
        drawable = [each.record.id for each in found if each.record.status == "ok" and not each.record.tuning]
        trial = draw(drawable, submission.digest, options.lot)
        checks += _executed(submission, suite, trial, options, checks)
    about = {"suite": card.suite, "head": card.head, "digest": submission.digest.hex(), "lot": options.lot}
    return Checked(**about, trial=trial, checks=tuple(checks))


def draw(trials: Sequence[str], digest: bytes, lot: str) -> str:
    """Draw one of some trials by the hash of the file and the lot of a second party; '' of none.

    The number SHA-256(digest, lot) modulo the number of trials is the place among the sorted ids.
    """
    if not trials:
        return ""
    number = int.from_bytes(hashlib.sha256(digest + lot.encode()).digest(), "big")
    return sorted(trials)[number % len(trials)]


def _source(submission: Submission) -> Check:
    if submission.source is None:
        return Check(SOURCE, "ok", "none is in the file: the head is one of the harness")
    faults = source_rules.faults(submission.source)
    if submission.card.licence is None:
        faults.append("the card names no licence of it")
    marks = [] if faults else source_rules.marks(submission.source)
    return judged(SOURCE, faults, marks, f"{len(submission.source.splitlines())} lines, {submission.card.licence}")


def _executed(submission: Submission, suite: Path, trial: str, options: Options, before: list[Check]) -> list[Check]:
    """The checks that execute the source; not run where the source or the records are refused already."""
    about = {
        "folder": str(submission.folder),
        "suite": str(suite.resolve()),
        "head": submission.card.head,
        "head_name": submission.head_name,
        "own_source": submission.source is not None,
        "data": str(options.data.resolve()),
    }
    blocking = [each for each in before if each.outcome == "refused" and each.name in (SOURCE, consistency.RECORDS)]
    if blocking:
        return [
            Check(name, "not checked", f"because of '{blocking[0].name}'")
            for name in (PLAN, CODE, LIKENESS, CONFORMANCE, AGAIN)
        ]
    checks = options.run(Job(kind="examine", **about), SECONDS)
    if not options.training:
        return [*checks, Check(AGAIN, "not checked", f"--no-training; it would be trial {trial}")]
    if not trial:
        return [*checks, Check(AGAIN, "refused", "no trial of the table has the status ok")]
    if is_refused([*before, *checks]):
        return [*checks, Check(AGAIN, "not checked", "something else was refused")]
    trials = plan.load(suite).possible_trials
    fetch_sources(trials, options.data)  # the process has no network
    hidden_text.fetch(trials, options.data)
    job = Job(kind="train", trial=trial, minutes=options.minutes, **about)
    return [*checks, *options.run(job, 60 * options.minutes + STARTS)]
