"""JSON files that contain their own checksum: written atomically, and verified when they are read.

`sha256` is taken over the canonical JSON of everything else in the file.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from harness.errors import RecordError
from harness.machine.files import read_bounded, write_atomically
from harness.plan.specs import checksum

Model, Kept = TypeVar("Model", bound=BaseModel), TypeVar("Kept")


def save(model: BaseModel, place: Path) -> None:
    """Write a model and its checksum. Raises StorageError."""
    write_atomically(place, content_of(model))


def content_of(model: BaseModel) -> bytes:
    """The content of a model's file."""
    return json.dumps({**model.model_dump(mode="json"), "sha256": digest(model)}, indent=1).encode()


def digest(model: BaseModel) -> str:
    return checksum(model.model_dump(mode="json"))


def read(place: Path, max_bytes: int) -> bytes | None:
    """The content of a file; None if there is none. Raises RecordError when it cannot be read or is too large."""
    try:
        return read_bounded(place, max_bytes)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as cause:
        raise RecordError(f"{place} cannot be read ({cause.strerror})") from cause


@contextmanager
def remedied(remedy: str) -> Iterator[None]:
    """A RecordError within it also says what to do next."""
    try:
        yield
    except RecordError as fault:
        raise RecordError(f"{fault}; {remedy}") from fault


def each(load: Callable[[str], Kept | None], names: Iterable[str]) -> tuple[dict[str, Kept], list[str]]:
    """What `load` finds under each name, and a sentence for each file that does not verify."""
    found, faults = {}, []
    for name in names:
        try:
            if (kept := load(name)) is not None:
                found[name] = kept
        except RecordError as fault:
            faults.append(str(fault))
    return found, faults


def parsed(text: bytes, kind: type[Model], place: Path, *, schema: int) -> Model:
    """The model in the content of a file; `place` is for messages.

    Raises: RecordError when it is damaged, edited or of another schema.
    """
    what = kind.__name__.removeprefix("Trial").lower()
    try:
        content = json.loads(text)
        stored = content.pop("sha256")
        if stored != checksum(content):
            raise RecordError(
                f"{place}: the checksum does not fit the content, which was damaged or edited; the {what} does not "
                "count"
            )
        if content["schema_version"] != schema:
            raise RecordError(
                f"{place}: schema {content['schema_version']}, expected {schema}: another version wrote it"
            )
        return kind.model_validate_json(json.dumps(content))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as cause:
        reason = str(cause).partition("\n")[0]
        raise RecordError(f"{place}: no valid {what} ({type(cause).__name__}: {reason})") from cause
