"""The submissions of a folder, with their badges, and which of them give numbers to a table.

A submission gives numbers when it was checked, nothing was refused, no newer one of its authors replaces it, and its
head can be had here: it is one of the harness, or its source becomes a head of this process. So its source is executed.
"""

import inspect
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import HarnessError, RecordError
from harness.extensions import is_there, needed
from harness.machine.files import unsynced
from harness.plan.names import MAX_LABEL
from harness.registry import HEADS
from harness.submissions import source_rules
from harness.submissions.archive import Submission, head_of, unpacked
from harness.submissions.badges import Badge, Note, badges_of, same_person, verified_notes

UNCHECKED = "not checked yet"
_STEM = re.compile(r"\w[\w.+-]{0,120}", re.ASCII)  # of a file whose page has the same name
Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A submission of the folder.

    Args:
        notes: those on this file that verify, refusals too.
        trials: the ids of its trials.
        why_not: why it gives no numbers; '' where it does.
    """

    submission: Submission
    badges: tuple[Badge, ...]
    notes: tuple[Note, ...]
    trials: frozenset[str]
    why_not: str

    @property
    def suite(self) -> str:
        return self.submission.card.suite

    @property
    def stem(self) -> str:
        return self.submission.place.stem

    @property
    def page(self) -> str:
        """The place of its page in a site."""
        return f"submissions/{self.suite}/{self.stem}.html"

    @property
    def counted_on(self) -> str:
        """The day of the first check, by another one than its authors, that refused nothing; '' without one."""
        authors = self.submission.card.authors
        by_others = []
        for note in self.notes:
            own = note.kind == "confirmed" and any(same_person(note.who, author) for author in authors)
            by_others += [note.date[:10]] if note.holds and not own else []
        return min(by_others, default="")

    @property
    def checked(self) -> Note | None:
        """The note of the maintainers' checks."""
        return next((note for note in self.notes if note.kind == "checked"), None)

    @property
    def change(self) -> str:
        """What adds its head to a suite, under the name of its card: 'heads+={"mine": {"label": "My head"}}'."""
        name, params = self.head
        label = re.sub(r"[{}]", "", self.submission.card.name)[:MAX_LABEL]
        return f"heads+={json.dumps({name: {**params, 'label': label}})}"

    @property
    def head(self) -> tuple[str, dict]:
        """The name of its head, and the parameters that it gives."""
        return head_of(self.submission.card.head)

    def add_to(self, results: Path) -> None:
        """Write its records into a results folder. Raises RecordError, StorageError."""
        with unsynced():
            needed("harness.exchange.copying:import_records", "a submission")(self.submission.records, results)

    def without_numbers(self, why: str) -> "Received":
        return replace(self, why_not=why)

    def is_of_authors_of(self, other: "Received") -> bool:
        """Whether an author of it is one of another submission."""
        ours, theirs = self.submission.card.authors, other.submission.card.authors
        return any(same_person(one, another) for one in ours for another in theirs)


def read(folder: Path, place: Path, warn: Warn) -> list[Received]:
    """The submissions in <folder>/<suite>/, those that were checked first at the beginning.

    Args:
        place: an empty folder, in which they are unpacked. It is needed as long as they are used.
        warn: called with a sentence for each file that is left out.
    """
    if not is_there("harness.exchange"):
        return []
    found = []
    for number, file in enumerate(sorted(folder.glob("*/*.zip"))):
        try:
            found.append(_received(file, place / str(number)))
        except RecordError as fault:
            warn(str(fault))
    found.sort(key=lambda each: (each.counted_on or "9999", each.submission.card.date, each.suite, each.stem))
    return [each if each.why_not else each.without_numbers(_why_not(each, found)) for each in found]


def _received(file: Path, place: Path) -> Received:
    """Raises RecordError for a file that is no submission, or is not where its card says."""
    place.mkdir(parents=True)
    submission = unpacked(file, place)
    card = submission.card
    if card.suite != file.parent.name or not _STEM.fullmatch(file.stem):
        expected = f"{card.suite}/<letters, digits, . + - _>.zip"
        raise RecordError(f"{file} is of the suite {card.suite}; expected it as {expected}, and it is left out")
    with needed("harness.exchange.bundle:opened", "a submission")(submission.records) as bundle:
        trials = frozenset(trial.id for trial in bundle.trials)
    notes = tuple(verified_notes(file))
    badges = badges_of(notes, card)
    refused = [f"refused: {check.name}" for note in notes for check in note.checks if check.outcome == "refused"]
    checked = any(badge.earned for badge in badges if badge.name == "checked")
    why_not = refused[0] if refused else "" if checked else UNCHECKED
    return Received(submission=submission, badges=badges, notes=notes, trials=trials, why_not=why_not)


def _why_not(one: Received, found: Sequence[Received]) -> str:
    """Why a submission that was checked gives no numbers; '' where it does. Then its head is one of this process."""
    for other in found[found.index(one) + 1 :]:
        again = other.head == one.head or other.submission.source != one.submission.source
        of_head = (other.suite, other.head[0]) == (one.suite, one.head[0])
        if of_head and again and not other.why_not and other.is_of_authors_of(one):
            return f"replaced by {other.stem}"
    return _not_here(one.submission)


def _not_here(submission: Submission) -> str:
    """Make the source of a submission a head of this process. '' where that is done, or is not needed."""
    name, source = submission.head_name, submission.source
    if source is None:
        return "" if name in HEADS.names() else f"this version of the harness has no head '{name}'"
    if name not in HEADS.names():
        if source_rules.faults(source):
            return "refused: source"
        HEADS.add_folder(submission.folder / "heads")
    try:
        there = Path(inspect.getfile(HEADS.get(name))).read_bytes()
    except (HarnessError, OSError, TypeError):
        return f"its source gives no head '{name}'"
    return "" if there == source.encode() else f"there is another head '{name}'"
