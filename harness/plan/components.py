"""The components that a suite names: checked against the registries and the constructors, with lists expanded to
grids.
"""

import itertools
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, nearest
from harness.plan.parameters import REQUIRED, axis, checked, is_place, parameters
from harness.plan.reader import Place, Source
from harness.plan.specs import ComponentSpec
from harness.registry import Registry

MAX_TRIALS = 10_000


@dataclass(frozen=True, slots=True)
class Component:
    """One point of the grid of a suite's entry: what to build, its class, and its place in the suite file."""

    spec: ComponentSpec
    cls: type
    place: Place

    def problem(self, source: Source, message: str) -> str:
        """Return a message with its place in the file: the parameter that the message begins with, or else the
        entry.
        """
        first = message.split(" ")[0].rstrip(":")
        if first in self.spec.params:
            return source.problem((*self.place, self.spec.name, first), message)
        return source.problem(self.place, message)


def components(entries: Any, registry: Registry, section: str, source: Source) -> tuple[list[Component], list[str]]:
    """Return the components of a section ('heads') in the order of the file, and the problems of the section.

    An entry with problems is returned with its valid parameters, so that later checks can find more problems of it. A
    suite with problems is never run.
    """
    found, problems = [], []
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        place = (section, index)
        try:
            name, params = _name_and_params(entry)
            cls = registry.listed(name)
            known = parameters(cls)
        except (ValueError, HarnessError) as error:
            at = (*place, *entry) if isinstance(entry, dict) and len(entry) == 1 else place
            problems.append(source.problem(at, str(error), at_key=True))
            continue
        except (TypeError, NameError) as error:
            problems.append(source.problem(place, f"{registry.kind} '{entry}' has no readable signature: {error}"))
            continue
        axes, wrong = _axes(known, params, (*place, name), f"{registry.kind} '{name}'", source)
        problems += wrong
        if math.prod(map(len, axes.values())) > MAX_TRIALS:
            problems.append(source.problem(place, f"a grid of more than {MAX_TRIALS} points"))
        elif all(name in axes for name, parameter in known.items() if parameter.default is REQUIRED):
            # also for an entry with problems: its valid parameters may have a mistake that only the constructor finds
            for values in itertools.product(*axes.values()):
                spec = ComponentSpec(name=name, params=dict(zip(axes, values, strict=True)))
                found.append(Component(spec, cls, place))
    return found, problems


def _name_and_params(entry: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, dict) and len(entry) == 1:
        ((name, params),) = entry.items()
        if params is None or isinstance(params, dict):
            return name, params or {}
    raise ValueError("expected a name, or one name with its parameters like 'mos: {num_mixtures: 5}'")


def _axes(known, params, place: Place, owner: str, source: Source) -> tuple[dict[str, list[Any]], list[str]]:
    axes, problems = {}, []
    for key in params.keys() - known.keys():
        message = f"unknown parameter '{key}' of {owner}{nearest(key, list(known)) or _known(known)}"
        problems.append(source.problem((*place, key), message, at_key=True))
    for name, parameter in known.items():
        if name not in params:
            if parameter.default is REQUIRED:
                problems.append(
                    source.problem(place, f"{owner} needs the parameter '{name}', which has no default", at_key=True)
                )
            continue
        values = axis(parameter, params[name])
        if not values:
            problems.append(source.problem((*place, name), "must not be empty"))
        is_axis = values is params[name]
        checked_values = []
        for index, value in enumerate(values):
            try:
                checked_values.append(_resolved(checked(parameter, value), parameter, source))
            except ValueError as error:
                at = (*place, name, index) if is_axis else (*place, name)
                problems.append(source.problem(at, str(error)))
        if checked_values:
            axes[name] = checked_values
    return axes, problems


def _resolved(value: Any, parameter, source: Source) -> Any:
    """Replace a path, which is relative to the suite file, by the absolute path as a string. Return other values
    unchanged.

    A relative path must stay in the folder that contains the suite's folder: a project may have its texts beside
    suites/. An absolute path may be anywhere.

    Raises: ValueError for a relative path that leaves this folder, by its text or by symbolic links.
    """
    if value is None or not is_place(parameter):
        return value
    folder = Path(os.path.realpath(source.path)).parent
    place = Path(os.path.realpath(folder / value))  # no error for links in a circle, unlike Path.resolve()
    if not Path(value).is_absolute() and not all(each.is_relative_to(folder.parent) for each in _reached(place)):
        raise ValueError(
            f"'{value}' is outside of {folder.parent}, the folder that contains the suite's folder; "
            "write an absolute path if that is intended"
        )
    return str(place)


def _reached(place: Path) -> list[Path]:
    """Return a path and, if it is a folder, the paths of its entries, with symbolic links resolved."""
    entries = place.glob("*") if os.path.isdir(place) else ()
    return [place, *(Path(os.path.realpath(entry)) for entry in entries)]


def _known(known: dict) -> str:
    return f" (it takes: {', '.join(known)})" if known else " (it takes none)"
