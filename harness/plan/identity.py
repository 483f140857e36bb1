"""A trial's id: the hash of what decides its result, and of nothing else."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from harness.containment.calls import calling
from harness.plan.parameters import parameters, places
from harness.plan.specs import DECIDES_NO_RESULT, ComponentSpec, TrainSpec
from harness.protocols import StartsFromFiles

SCHEMA_VERSION = 1  # bump it when a default or the meaning of a setting changes: every id changes with it


@dataclass(frozen=True, slots=True)
class Identified:
    """A component of a trial, for the trial's id.

    Args:
        spec: its name and parameters.
        cls: its class, which has the defaults.
        content: the hash of the files behind it: the corpus' text, the weights that a backbone starts from. None for a
            component without files.
    """

    spec: ComponentSpec
    cls: type
    content: str | None = None

    def described(self) -> dict[str, Any]:
        """What of it enters the id."""
        files = {} if self.content is None else {"content": self.content}
        return {**described(self.spec, self.cls), **files}


def trial_id(*, corpus: Identified, backbone: Identified, head: Identified, train: TrainSpec, seed: int) -> str:
    """The id of a trial: the first 12 hexadecimal digits of the SHA-256 of canonical JSON.

    Keys are sorted, values equal to their default are left out, and whole floats are written as integers. Paths of
    files and settings of `train` that change no result are left out; the content of the files stands for the files.
    """
    identity = {
        "schema": SCHEMA_VERSION,
        "corpus": corpus.described(),
        "backbone": backbone.described(),
        "head": head.described(),
        "train": train.model_dump(exclude_defaults=True, exclude=set(DECIDES_NO_RESULT)),
        "seed": seed,
    }
    return hashlib.sha256(canonical(identity).encode()).hexdigest()[:12]


def starting_content(backbone: ComponentSpec, cls: type) -> str | None:
    """What the weights are that a backbone starts from; None for random ones. Raises what its class raises, and
    ComponentError.
    """
    if not isinstance(cls, StartsFromFiles):
        return None
    with calling(f"backbone {backbone.name}", "content"):
        return cls.content(**backbone.params)


def canonical(value: Any) -> str:
    """JSON that is the same for equal values."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def described(spec: ComponentSpec, cls: type) -> dict[str, Any]:
    """What of a component counts: its name, and its parameters without defaults and places."""
    known = parameters(cls)
    params = {
        name: value
        for name, value in spec.params.items()
        if plain(value) != plain(known[name].default) and name not in places(cls)
    }
    return {"name": spec.name, "params": params}


def plain(value: Any) -> Any:
    """As JSON tells values apart: 1.0 -> 1 and a tuple -> a list, all the way down."""
    if isinstance(value, str | int | None):  # by far the most: records are made canonical by the thousand
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    return value
