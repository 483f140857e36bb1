"""A trial's id: the hash of what decides its result, and of nothing else."""

import hashlib
import json
from typing import Any

from harness.containment.calls import calling
from harness.plan.parameters import parameters, places
from harness.plan.specs import DECIDES_NO_RESULT, ComponentSpec, TrainSpec
from harness.protocols import StartsFromFiles

SCHEMA_VERSION = 1  # bump it when a default or the meaning of a setting changes: every id changes with it


def trial_id(
    *,
    corpus: ComponentSpec,
    corpus_class: type,
    corpus_content: str,
    backbone: ComponentSpec,
    backbone_class: type,
    backbone_content: str | None = None,
    head: ComponentSpec,
    head_class: type,
    train: TrainSpec,
    seed: int,
) -> str:
    """12 hex digits of SHA-256 over canonical JSON: sorted keys, values equal to their default left out, whole floats
    written as integers. Places of files are left out too, the content of the corpus and of the weights that the
    backbone starts from stands for them; and settings of `train` that change no result.
    """
    start = {} if backbone_content is None else {"content": backbone_content}
    identity = {
        "schema": SCHEMA_VERSION,
        "corpus": {**described(corpus, corpus_class), "content": corpus_content},
        "backbone": {**described(backbone, backbone_class), **start},
        "head": described(head, head_class),
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
