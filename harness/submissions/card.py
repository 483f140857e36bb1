"""The card of a submission: what its author says of the head, and what the harness adds.

A card is YAML. `Card` is what an author writes; `FullCard` is what a submission holds, with what follows from the
records.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from harness.errors import SuiteError
from harness.plan.reader import read
from harness.plan.specs import SUITE_NAME
from harness.records.record import TrialRecord

LICENCES = {  # SPDX identifiers of licences under which a source may be shown and run by others
    *("Apache-2.0", "MIT", "MIT-0", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC", "Zlib", "Unlicense", "CC0-1.0"),
    *("MPL-2.0", "LGPL-3.0-or-later", "GPL-2.0-or-later", "GPL-3.0-only", "GPL-3.0-or-later", "AGPL-3.0-or-later"),
}
NEW_CARD = f"""\
# A card for `harness submit`. Each line of it becomes public.
name: My head                      # as tables and pages name it
sentence: What it computes and why, in one sentence.
authors: [Name as you want to be named]
# paper: https://arxiv.org/abs/... # where it was published; leave it out if it was not
# The licence of its source, an SPDX identifier; leave it out for a head of the harness.
# One of {", ".join(sorted(LICENCES)[:8])},
# {", ".join(sorted(LICENCES)[8:])}
licence: Apache-2.0
"""
Line = Annotated[str, Field(min_length=1, max_length=100)]
Kind = TypeVar("Kind", bound="Card")


class Card(BaseModel):
    """What an author writes.

    Args:
        sentence: what the head computes and why.
        paper: an address where it was published.
        authors: as they want to be named.
        licence: of the head's source, as an SPDX identifier; None for a head of the harness.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: Line
    sentence: Annotated[str, Field(min_length=1, max_length=300)]
    authors: Annotated[tuple[Line, ...], Field(min_length=1, max_length=50)]
    paper: Annotated[str, Field(pattern=r"^https?://[^\s<>\"]{1,300}$")] | None = None
    licence: str | None = None

    @field_validator("name", "sentence", "authors")
    @classmethod
    def _printable(cls, value: Any) -> Any:
        for text in (value,) if isinstance(value, str) else value:
            if not text.isprintable() or not text.strip():
                raise ValueError("expected one line of printable characters")
        return value

    @field_validator("licence")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and value not in LICENCES:
            raise ValueError(f"expected one of {', '.join(sorted(LICENCES))}")
        return value


class FullCard(Card):
    """What a submission holds.

    Args:
        head: the entry of `heads` in a suite, as YAML: 'mine' or '{mine: {k: 3}}'.
        date: on which it was made, as 2026-03-31.
        hardware: the devices of its trials.
        core_hours: of all its trials, with those of its tuning: minutes of training times threads.
        harness: the version that made it.
    """

    suite: Annotated[str, Field(pattern=SUITE_NAME)]
    head: Annotated[str, Field(min_length=1, max_length=2000)]
    date: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$")]
    hardware: Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(min_length=1, max_length=50)]
    core_hours: Annotated[float, Field(ge=0)]
    harness: Line


def read_card(place: Path, kind: type[Kind]) -> Kind:
    """Read a card. Raises SuiteError with a sentence for each mistake."""
    try:
        data, source = read(place)
        return kind.model_validate_json(json.dumps(data))
    except ValidationError as invalid:
        said = []
        for error in invalid.errors():
            message = error["msg"].removeprefix("Value error, ")
            said.append(source.problem(tuple(error["loc"]), message[:1].lower() + message[1:]))
        raise SuiteError(said) from None


def hardware_of(records: Sequence[TrialRecord]) -> tuple[str, ...]:
    """The devices of some trials, each once, sorted."""
    return tuple(sorted({record.environment.device for record in records}))


def core_hours_of(records: Sequence[TrialRecord]) -> float:
    """The hours of training, times threads, of some trials; to a hundredth."""
    minutes = [each.metrics.get("train_minutes", 0.0) * each.environment.threads for each in records]
    return round(sum(minutes) / 60, 2)
