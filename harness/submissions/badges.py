"""What has been done with a submission: files beside it, and the badges that follow from them.

    mine-2026-03-31.zip                      the submission
    mine-2026-03-31.checked.json             all checks, as the maintainers ran them
    mine-2026-03-31.confirmed-<name>.json    the same by another person, with a trial trained again
    mine-2026-03-31.signed-off.json          a full run of the maintainers, to which the author agrees

Each of them names the SHA-256 of the submission, and counts for that file only. They are sealed against damage, not
against forgers: that a note comes from whom it names is known by who commits it.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

import harness
from harness.errors import HarnessError
from harness.machine.environment import device_name
from harness.records import sealed
from harness.submissions.card import FullCard
from harness.submissions.checking import Checked
from harness.submissions.outcomes import Check

SCHEMA = 1
MAX_BYTES = 2**20
GOOD = ("identical", "plausible")
Line = Annotated[str, Field(max_length=500)]
Kind = Literal["checked", "confirmed", "signed off"]


class Note(BaseModel):
    """The content of a file beside a submission.

    Args:
        submission: the SHA-256 of the file that was checked.
        who: the person who checked.
        machine: processor, Python and torch.
        trial, verdict: which trial was trained again, and how it compares with its record.
        lot: by which that trial was drawn, with the hash of the file.
        agreed: of a sign-off: where the author agreed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA
    kind: Kind
    submission: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    who: Line
    date: Line
    machine: Line
    harness: Line
    trial: Line
    verdict: Line
    lot: Line = ""
    checks: tuple[Check, ...]
    agreed: Line = ""

    @property
    def holds(self) -> bool:
        """Whether nothing was refused, and a trial that was trained again agrees."""
        return self.verdict in GOOD and not any(each.outcome == "refused" for each in self.checks)


@dataclass(frozen=True, slots=True)
class Badge:
    """A badge of a submission.

    Args:
        name: 'submitted', 'checked', 'run again by a second party' or 'signed off'.
        who: the persons to whom it is due; () where it is not earned.
    """

    name: str
    earned: bool
    who: tuple[str, ...] = ()
    sentence: str = ""


def write(place: Path, kind: Kind, found: Checked, who: str, agreed: str = "") -> Path:
    """Write a note beside a submission; its path. Raises StorageError."""
    where = f"{device_name(torch.device('cpu'))}, torch {torch.__version__}"
    note = Note(
        kind=kind,
        submission=found.digest,
        who=who,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=where,
        harness=harness.__version__,
        trial=found.trial,
        verdict=found.verdict,
        lot=found.lot,
        checks=found.checks,
        agreed=agreed,
    )
    endings = {"checked": "checked", "confirmed": f"confirmed-{_plain(who)}", "signed off": "signed-off"}
    target = place.with_name(f"{place.stem}.{endings[kind]}.json")
    sealed.save(note, target)
    return target


def verified_notes(place: Path) -> Iterator[Note]:
    """The notes on a submission that verify and are of this file, by name; also those in which something is refused."""
    digest = hashlib.sha256(place.read_bytes()).hexdigest()
    for file in sorted(place.parent.glob(f"{place.stem}.*.json")):
        try:
            content = sealed.read(file, MAX_BYTES)
            note = None if content is None else sealed.parsed(content, Note, file, schema=SCHEMA)
        except HarnessError:
            continue
        if note is not None and note.submission == digest:
            yield note


def badges_of(notes: Iterable[Note], card: FullCard) -> tuple[Badge, ...]:
    """The badges of a submission, in their order. An author is no second party of an own submission."""
    notes = [each for each in notes if each.holds]
    authors = {_plain(each) for each in card.authors}
    others = [each for each in notes if each.kind == "confirmed" and _plain(each.who) not in authors]
    own = [each for each in notes if each.kind == "confirmed" and each not in others]
    by_kind = {"checked": [each for each in notes if each not in own], "run again by a second party": others}
    by_kind["signed off"] = [each for each in notes if each.kind == "signed off" and each.agreed]
    found = [Badge("submitted", True, card.authors, f"on {card.date}")]
    for name, these in by_kind.items():
        who = tuple(dict.fromkeys(each.who for each in these))
        said = "; ".join(f"{each.date[:10]}, {each.machine}" for each in these[:3])
        found.append(Badge(name, bool(these), who, said))
    return tuple(found)


def same_person(one: str, other: str) -> bool:
    """Whether two names are spellings of one."""
    return _plain(one) == _plain(other)


def _plain(name: str) -> str:
    """A name as a part of a file's name, by which two spellings are one person."""
    return re.sub(r"\W+", "-", unicodedata.normalize("NFKC", name).casefold()).strip("-")[:60] or "unnamed"
