"""All settings of a trial by name, defaults included: 'head.num_mixtures', 'train.schedule.plateau.factor'."""

from collections.abc import Iterator
from typing import Any

from harness.errors import BrokenComponent, DuplicateComponent, UnknownComponent
from harness.plan.parameters import resolved
from harness.plan.specs import TrialSpec, plain
from harness.registry import BACKBONES, CORPORA, HEADS


def all_settings(spec: TrialSpec) -> dict[str, Any]:
    """The settings of a trial; a component's name is under its kind, 'head'."""
    nested: dict[str, Any] = {}
    for kind, registry in {"corpus": CORPORA, "backbone": BACKBONES, "head": HEADS}.items():
        component = getattr(spec, kind)
        try:
            values = resolved(registry.get(component.name), component.params)
        except (UnknownComponent, BrokenComponent, DuplicateComponent):  # an old record's plug-in is not installed
            values = component.params
        nested[kind] = {"": component.name, **values}
    nested |= {"train": spec.train.model_dump(), "seed": spec.seed}
    return dict(_flat(plain(nested)))


def _flat(value: dict[str, Any], name: str = "") -> Iterator[tuple[str, Any]]:
    """The value under '' has the name of what it stands in."""
    for key, child in value.items():
        full = f"{name}.{key}".strip(".")
        if isinstance(child, dict) and child:
            yield from _flat(child, full)
        else:
            yield full, child
