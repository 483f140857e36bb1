"""The id of a trial: a hash of everything that decides its result, and of nothing else."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.containment import guarded
from harness.model_folder import sha256_of
from harness.plan.parameters import parameters, paths, places, takes_name, with_paths
from harness.plan.specs import DECIDES_NO_RESULT, ComponentSpec, TrainSpec, canonical, plain
from harness.protocols import Frozen, StartsFromFiles

SCHEMA_VERSION = 2  # increase it when a default or the meaning of a setting changes: then every id changes


@dataclass(frozen=True, slots=True)
class Identified:
    """What of a component enters a trial's id.

    Args:
        content: the hash of the files behind it: the corpus' text, the weights that a backbone starts from, what a path
            in its parameters names. None for a component without files.
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


def starting_content(component: ComponentSpec, cls: type) -> str | None:
    """Return the identity of the files that a backbone or head starts from; None without any: what its class says, or
    else a hash of the files, and of all files in the folders with their names, that its parameters of the type Path
    name. Such a parameter is of what is read, and never of what is written; one of the type `Path | str` may be a name.

    Raises: OSError, what the class raises, and ComponentError.
    """
    if isinstance(cls, StartsFromFiles):
        with guarded(f"backbone {component.name}", "content"):
            return cls.content(**component.params)
    content = {}
    for name, given in sorted(paths(cls, component.params).items()):
        place = Path(given)
        if place.is_dir():
            for file in sorted(each for each in place.rglob("*") if each.is_file()):
                content[f"{name}/{file.relative_to(place)}"] = sha256_of([file])
        elif place.exists() or not takes_name(parameters(cls)[name.partition(".")[0]]):
            content[name] = sha256_of([place])
    return hashlib.sha256(canonical(content).encode()).hexdigest() if content else None


def is_frozen(backbone: ComponentSpec, cls: type) -> bool:
    """Return whether a backbone's weights stay as they are, so that its hidden states are kept in files."""
    return isinstance(cls, Frozen) and cls.is_frozen(**backbone.params)


def described(spec: ComponentSpec, cls: type) -> dict[str, Any]:
    """Return the part of a component that enters the id: its name, and its parameters without defaults and paths."""
    known = parameters(cls)
    params = {
        name: value
        for name, value in spec.params.items()
        if plain(value) != plain(known[name].default) and name not in places(cls)
    }
    return {"name": spec.name, "params": with_paths(cls, params, lambda path: None)}
