"""The settings in which two trials differ."""

from dataclasses import dataclass
from typing import Any

from harness.plan.parameters import resolved
from harness.plan.specs import TrialSpec, plain, value_text
from harness.registry import BACKBONES, HEADS

ABSENT = "-"
_MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A setting that differs: 'head.num_mixtures', from '2' to '5'; '-' if one of the trials does not have it."""

    key: str
    a: str
    b: str


def changes(a: TrialSpec, b: TrialSpec) -> list[Change]:
    """Every setting in which b differs from a, defaults included. Raises UnknownComponent."""
    ours, theirs = _settings(a), _settings(b)
    keys = [*ours, *(key for key in theirs if key not in ours)]
    pairs = ((key, ours.get(key, _MISSING), theirs.get(key, _MISSING)) for key in keys)
    return [Change(key=key, a=_text(one), b=_text(other)) for key, one, other in pairs if one != other]


def _settings(spec: TrialSpec) -> dict[str, Any]:
    backbone = {"": spec.backbone.name, **resolved(BACKBONES.get(spec.backbone.name), spec.backbone.params)}
    head = {"": spec.head.name, **resolved(HEADS.get(spec.head.name), spec.head.params)}
    nested = {"backbone": backbone, "head": head, "train": spec.train.model_dump(), "seed": spec.seed}
    return dict(_flat(plain(nested)))


def _flat(value: dict[str, Any], name: str = ""):
    """'train.schedule.plateau.factor' -> 0.5; the value under '' has the name of what it stands in."""
    for key, child in value.items():
        full = f"{name}.{key}".strip(".")
        if isinstance(child, dict) and child:
            yield from _flat(child, full)
        else:
            yield full, child


def _text(value: Any) -> str:
    return ABSENT if value is _MISSING else value_text(value)
